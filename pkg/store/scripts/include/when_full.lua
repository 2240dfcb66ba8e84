-- A full Redis refuses a script at its first write that may need memory, and not behind one that
-- does not. This one frees what is not there: what a slice has in flight is renewed, recorded and
-- given back however full Redis is, and what that takes is bounded by what is in flight.
redis.call('UNLINK', KEYS[1] .. ':none')
