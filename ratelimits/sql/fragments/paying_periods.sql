-- The periods `period` of budgets that pay for a call `job` of `payer` and `payer_batch` (user and batch), made `at`.
JOIN ratelimits_budget AS budget ON budget.project_id = job.project_id
JOIN ratelimits_budgetperiod AS period
  ON period.budget_id = budget.id AND period.starts_at = {{period_start budget}}
 AND period.key = CASE budget.scope
                  WHEN 'project' THEN ''
                  WHEN 'each_user' THEN payer::text
                  WHEN 'user' THEN CASE WHEN payer = budget.user_id THEN '' END
                  WHEN 'batch' THEN CASE WHEN payer_batch = budget.batch_id THEN '' END END
