"""Example bodies and answers of the OpenAPI document. A test validates each against its schema."""

AT = "2026-03-02T09:15:04.120394Z"
LATER = "2026-03-02T09:15:09.120394Z"
