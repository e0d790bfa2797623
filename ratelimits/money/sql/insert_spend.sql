-- Write calls and their costs into the ledger, each once, and add the costs to the budgets that pay for them.
--
-- A call that was counted as unknown gets its true cost if its answer comes after all. Any other call that is in the
-- ledger already stays as it is.
--
-- params  jobs, tokens (fencing), kinds, projects, users, batches, providers, models, vias, times (seconds since 1970),
--         inputs, cached, written, kept (an hour), outputs, sums (of tokens), requests, money (micro-units): parallel arrays;
--         periods: the periods that the transaction has locked. Only these get the costs, and house-keeping recounts
--         periods that began since. Null: the transaction has locked no period, and all paying periods get the costs
-- locks   none but those of the unique key; then the periods of budgets, in the order of their ids
-- clock   none
-- returns job and token of each row that was written
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(jobs)s::uuid[], %(tokens)s::bigint[], %(kinds)s::text[], %(projects)s::text[],
                         %(users)s::uuid[], %(batches)s::uuid[], %(providers)s::text[], %(models)s::text[],
                         %(vias)s::text[], %(times)s::float8[], %(inputs)s::bigint[], %(cached)s::bigint[],
                         %(written)s::bigint[], %(kept)s::bigint[], %(outputs)s::bigint[], %(sums)s::bigint[], %(requests)s::int[],
                         %(money)s::bigint[])
           AS given (job, token, kind, project, user_id, batch, provider, model, via, at,
                     input, cached, stored, kept, output, total, requests, money)
), before AS MATERIALIZED (
    SELECT spend.job_id, spend.token, spend.money FROM given
      JOIN ratelimits_spend AS spend ON spend.job_id = given.job AND spend.token = given.token AND spend.part = 0
     WHERE spend.kind = 'unknown'
), written AS (
    INSERT INTO ratelimits_spend AS spend
           (job_id, token, kind, project_id, user_id, batch_id, provider, model, via, at,
            input_tokens, cached_tokens, written_tokens, written_1h_tokens, output_tokens, tokens, requests, money)
    SELECT job, token, kind, project, user_id, batch, provider, model, via, to_timestamp(at),
           input, cached, stored, kept, output, total, requests, money
      FROM given
     ORDER BY job, token
        ON CONFLICT (job_id, token, part) DO UPDATE
           SET kind = excluded.kind, input_tokens = excluded.input_tokens, cached_tokens = excluded.cached_tokens,
               written_tokens = excluded.written_tokens, written_1h_tokens = excluded.written_1h_tokens,
               output_tokens = excluded.output_tokens, tokens = excluded.tokens, money = excluded.money
         WHERE spend.kind = 'unknown' AND excluded.kind = 'call'
    RETURNING spend.job_id, spend.token, spend.project_id, spend.user_id AS payer, spend.batch_id AS payer_batch,
              spend.at, spend.money
), change AS (
    SELECT period.id, sum(coalesce(written.money, 0) - coalesce(before.money, 0)) AS amount
      FROM written
      LEFT JOIN before USING (job_id, token)
           {{paying_periods written}}
     WHERE coalesce(period.id = ANY(%(periods)s::bigint[]), true)
     GROUP BY period.id
), locked AS MATERIALIZED (
    SELECT id FROM ratelimits_budgetperiod WHERE id IN (SELECT id FROM change) ORDER BY id FOR UPDATE
), counted AS (
    UPDATE ratelimits_budgetperiod AS period SET spent = period.spent + change.amount
      FROM change JOIN locked USING (id)
     WHERE period.id = change.id
)
SELECT job_id, token FROM written
