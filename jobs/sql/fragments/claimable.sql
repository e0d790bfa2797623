-- A job outside lanes that may be claimed, with bare columns: the conditions of jobs_job_ready_idx, word by word.
{{ready}} AND job.crash_count < 2 AND job.lane IS NULL
