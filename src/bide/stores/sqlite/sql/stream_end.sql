-- The newest place.
SELECT max(place) FROM ledger
