package e2e

import (
	"fmt"
	"strings"
	"testing"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
)

// TestHostIsShared: promise 8. Of two tenants with a job each on one host, neither waits
// until the other has done.
func TestHostIsShared(t *testing.T) {
	t.Parallel()
	site := slowSite(t, 0)
	d := deploy(t, 3, "TRAWL_HOST_DELAY=100ms", "TRAWL_HOST_CONCURRENCY=2")
	jobs := map[string]string{}
	for _, tenant := range []string{alpha, beta} {
		var urls []string
		for i := range 300 {
			urls = append(urls, fmt.Sprintf("%s/%s/%d", site.URL, tenant, i))
		}
		jobs[tenant] = d.submit(tenant, fields{"urls": urls, "concurrency": 16}).ID
		d.watch(tenant, jobs[tenant])
	}
	crawltest.Eventually(t, long, "forty requests", func() bool { return len(site.Requests()) >= 40 })
	by := map[string]int{}
	for _, r := range site.Requests() {
		by[strings.Split(r.URI, "/")[1]]++
	}
	log := site.Requests()
	t.Logf("%d requests in %v, by tenant %v", len(log), log[len(log)-1].At.Sub(log[0].At), by)
	if by[alpha] < 10 || by[beta] < 10 {
		t.Errorf("of the host's first requests the tenants had %v, want each a fair part", by)
	}
	for tenant, job := range jobs {
		if j := d.cancel(tenant, job); j.State != crawl.Cancelled {
			t.Errorf("cancelled as %+v", j)
		}
	}
}
