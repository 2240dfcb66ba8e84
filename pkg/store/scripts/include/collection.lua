-- upsert is where the records of a page enter the job's collection, in the same
-- step as the page's commit. No job can name a collection yet: it writes nothing.
local function upsert(seq, record) end
