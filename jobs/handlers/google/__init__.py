"""Google Sheets, and the sign-in of Google's APIs."""
