package obs_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"example.com/trawl/pkg/obs"
)

// deaf is a reader that reads nothing until it is let go.
type deaf struct {
	*httptest.ResponseRecorder

	written chan<- struct{} // told of the first write, which then waits
	let     <-chan struct{}
}

func (d deaf) Write(b []byte) (int, error) {
	d.written <- struct{}{}
	<-d.let
	return d.ResponseRecorder.Write(b)
}

// Whoever reads slowly, or not at all, keeps nobody else from the metrics.
func TestMetricsSlowReaders(t *testing.T) {
	t.Parallel()
	const readers = 10
	h := obs.MetricsHandler(obs.NewRegistry())
	scrape := func(w http.ResponseWriter) {
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	}
	written, let, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	for range readers {
		go func() {
			scrape(deaf{httptest.NewRecorder(), written, let})
			ended <- struct{}{}
		}()
	}
	for range readers { // all have gathered, though three may at a time
		<-written
	}
	w := httptest.NewRecorder()
	scrape(w)
	if w.Code != http.StatusOK {
		t.Errorf("status %d", w.Code)
	}
	close(let)
	for range readers {
		<-ended
	}
}
