package queue

import (
	"errors"
	"fmt"
)

// Describe says for a person what a task carries: the ring, and where the API has its job. Of a
// payload that is no ring it says only how long it is, for a task of somebody else's may carry
// anything, secrets too; and of a task of a newer version of Trawl, that it is one. What it says
// takes two lines, since the page shows 45 columns; nothing in it needs to be escaped.
func Describe(kind string, payload []byte) string {
	r, err := ringOf(kind, payload)
	switch {
	case err == nil:
		return fmt.Sprintf("ring %d of tenant %s\nGET /v1/jobs/%s", r.N, r.Tenant, r.ID)
	case errors.Is(err, ErrNewer):
		return "a task of a newer version of Trawl\nUpdate this process to read it"
	}
	return fmt.Sprintf("%d bytes that are no ring", len(payload))
}
