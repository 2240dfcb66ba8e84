-- outbox is where an event of a job enters the tenant's outbox, in the same step
-- as the change that it tells of. Nothing listens yet: it writes nothing.
local function outbox(event, now) end
