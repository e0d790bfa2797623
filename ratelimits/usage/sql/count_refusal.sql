-- Count a reservation that was refused for want of room, and return how much room there is.
--
-- params  project_id, user_id, month_year, quota: what reserve_usage.sql found
-- locks   the user's month
-- clock   none
-- returns what is left of the quota; by now it may be enough for the reservation
INSERT INTO ratelimits_usagetracking AS month (project_id, user_id, month_year, quota, refused)
VALUES (%(project_id)s, %(user_id)s, %(month_year)s, %(quota)s, 1)
ON CONFLICT (project_id, user_id, month_year) DO UPDATE SET refused = month.refused + 1
RETURNING %(quota)s - used - reserved
