"""The layers between a client and the application: caps, queues, headers, refusals, and stopping."""
