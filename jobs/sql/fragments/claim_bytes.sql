-- How many bytes a claim reads of a job.
{{payload_bytes}} + coalesce({{result_bytes}}, 0)
