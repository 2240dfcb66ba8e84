package queue

import "fmt"

// Describe says for a person what a task carries: the ring, and where the API has its job. Of a
// payload that is no ring it says only how long it is, for a task of somebody else's may carry
// anything, secrets too. A ring takes two lines, since the page shows 45 columns; nothing in the
// result needs to be escaped.
func Describe(kind string, payload []byte) string {
	if r, err := decode(payload); err == nil && kind == taskType {
		return fmt.Sprintf("ring %d of tenant %s\nGET /v1/jobs/%s", r.N, r.Tenant, r.ID)
	}
	return fmt.Sprintf("%d bytes that are no ring", len(payload))
}
