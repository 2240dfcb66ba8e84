package obs_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"example.com/trawl/pkg/obs"
)

// Readers that do not read must not keep others from the metrics.
func TestMetricsSlowReaders(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(obs.MetricsHandler(obs.NewRegistry()))
	t.Cleanup(s.Close)
	for range 5 {
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = c.Write([]byte(strings.Repeat("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 5000)))
	}
	time.Sleep(time.Second)
	r, err := http.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Errorf("status %d", r.StatusCode)
	}
}
