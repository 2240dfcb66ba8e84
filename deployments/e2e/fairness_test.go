package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

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

// TestTenantsAreShared: DESIGN §4.2 and §4.4. Another tenant's first page waits for a short
// slice, and not for the thousand jobs of a tenant that keep every place of three workers.
func TestTenantsAreShared(t *testing.T) {
	t.Parallel()
	const jobs, pages, tries = 1000, 150, 5
	// A page takes half a second and three workers have twelve in flight: these are what
	// they fetch in 8 s, a short slice and what a handover takes. On a busy machine it
	// takes longer, and the pages do too. The thousand jobs would take nearly two hours.
	const most = 200
	site := slowSite(t, 500*time.Millisecond)
	d := deploy(t, 3, "TRAWL_CONCURRENCY=4")
	for k := range jobs {
		urls := make([]string, pages)
		for i := range urls {
			urls[i] = fmt.Sprintf("%s/%d/%d", site.URL, k, i)
		}
		d.submit(alpha, fields{"urls": urls, "concurrency": 64})
	}
	crawltest.Eventually(t, long, "every place to be taken", func() bool { return len(site.Requests()) > 100 })
	for range tries {
		other := slowSite(t, 0)
		asked := len(site.Requests())
		submitted := time.Now()
		job := d.submit(beta, fields{"urls": numbered(other, 3)}).ID
		w := d.watch(beta, job)
		crawltest.Eventually(t, long, "the other tenant's first page", func() bool { return len(other.Requests()) > 0 })
		waited, meanwhile := other.Requests()[0].At.Sub(submitted), len(site.Requests())-asked
		t.Logf("the other tenant's first page was asked for after %v and %d pages of the first tenant", waited, meanwhile)
		if meanwhile > most {
			t.Errorf("the other tenant's first page has waited for %d pages of the first tenant, want at most %d", meanwhile, most)
		}
		w.end(long)
	}
}
