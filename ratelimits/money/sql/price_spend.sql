-- Price calls whose price was missing, and add their costs to the budgets that pay for them.
--
-- params  ids, money (micro-units): parallel arrays
-- locks   the periods of budgets, in the order of their ids, then the calls: as the ends of calls do
-- clock   none
-- returns the ids of the calls that had no price until now
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::bigint[], %(money)s::bigint[]) AS given (id, money)
), paying AS MATERIALIZED (
    SELECT paid.id AS call, paid.money, period.id AS period
      FROM (SELECT spend.id, given.money, spend.project_id, spend.user_id AS payer, spend.batch_id AS payer_batch, spend.at
              FROM given JOIN ratelimits_spend AS spend USING (id)) AS paid
           {{paying_periods paid}}
), locked AS MATERIALIZED (
    SELECT id FROM ratelimits_budgetperiod WHERE id IN (SELECT period FROM paying) ORDER BY id FOR UPDATE
), priced AS (
    UPDATE ratelimits_spend AS spend SET money = given.money
      FROM given
     WHERE spend.id = given.id AND spend.money IS NULL
       AND (SELECT count(*) FROM locked) >= 0  -- locks all periods before the first call
    RETURNING spend.id
), counted AS (
    UPDATE ratelimits_budgetperiod AS period SET spent = period.spent + change.amount
      FROM (SELECT paying.period AS id, sum(paying.money) AS amount
              FROM priced JOIN paying ON paying.call = priced.id
             GROUP BY paying.period) AS change
     WHERE period.id = change.id
)
SELECT id FROM priced
