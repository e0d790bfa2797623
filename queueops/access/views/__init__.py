"""The pages of signing in, passkeys, providers, invitations and second factors."""
