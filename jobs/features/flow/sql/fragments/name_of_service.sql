-- The name under which a `service` is counted: its own if it is `known`, or if most_services leaves a place for it.
CASE WHEN known.service IS NOT NULL
          OR row_number() OVER (PARTITION BY known.service IS NULL ORDER BY service)
             <= %(most_services)s::int - (SELECT count(*) FROM known)
     THEN service ELSE 'other' END
