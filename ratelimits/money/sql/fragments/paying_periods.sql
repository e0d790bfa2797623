-- Join, as `period`, the budget periods that pay for a call `job`, made at `at` by user `payer` in batch `payer_batch`.
JOIN ratelimits_budget AS budget ON budget.project_id = job.project_id
JOIN ratelimits_budgetperiod AS period
  ON period.budget_id = budget.id AND period.starts_at = {{period_start budget}}
 AND period.key = CASE budget.scope
                  WHEN 'project' THEN ''
                  WHEN 'each_user' THEN payer::text
                  WHEN 'user' THEN CASE WHEN payer = budget.user_id THEN '' END
                  WHEN 'batch' THEN CASE WHEN payer_batch = budget.batch_id THEN '' END END
