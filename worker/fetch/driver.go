package fetch

import (
	"net/http"

	"github.com/gocolly/colly/v2"
)

// nowhere is the URL that colly is told, in place of the one that is fetched: it takes every URL
// apart three times, with up to a hundred allocations, to apply rules that are all off here. Where
// a request goes is for [exchange.RoundTrip].
const nowhere = "http://h/"

// driver is a collector of colly, and the fetch that it does. Its dedupe, rules and limits are off,
// and its callbacks ask the exchange, so that nothing of one fetch is left for the next one; it
// does one at a time.
type driver struct {
	collector *colly.Collector
	context   *colly.Context // empty, and nobody puts anything into it
	x         *exchange
}

// newDriver makes a collector. The fields are set after NewCollector, for it reads the environment last; [New] refuses
// what it would heed there.
func newDriver() *driver {
	d := &driver{collector: colly.NewCollector(), context: colly.NewContext()}
	c := d.collector
	c.AllowURLRevisit = true
	c.IgnoreRobotsTxt = true // decided before the fetch, by package robots
	c.ParseHTTPErrorResponse = true
	c.MaxBodySize = 0 // counts compressed bytes; see readBody for ours
	c.SetRequestTimeout(0)
	c.DisableCookies() // RoundTrip sends and keeps those of Request.Jar
	c.WithTransport(d)
	c.SetRedirectHandler(func(*http.Request, []*http.Request) error { return d.x.redirect() })
	c.OnResponse(func(*colly.Response) { d.x.parse() })
	return d
}

// RoundTrip implements [http.RoundTripper].
func (d *driver) RoundTrip(req *http.Request) (*http.Response, error) { return d.x.RoundTrip(req) }
