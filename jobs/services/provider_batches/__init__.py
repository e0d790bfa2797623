"""The batch lane: jobs that go by a provider's batch API. docs/adr/0049 says why it is built so."""
