package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestProbe(t *testing.T) {
	// A proxy of the environment would be asked in place of the process.
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ready":
		case "/moved":
			http.Redirect(w, r, "/ready", http.StatusFound)
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"failing":["redis"]}`)) // the test sees what came
		}
	}))
	defer site.Close()
	for _, c := range []struct {
		args []string
		want string // part of the error, "" for none
	}{
		{[]string{site.URL + "/ready"}, ""},
		{[]string{site.URL + "/other"}, `503 Service Unavailable: {"failing":["redis"]}`},
		{[]string{site.URL + "/moved"}, "302"},
		{[]string{"http://127.0.0.1:1/ready"}, "refused"},
		{[]string{"://"}, "missing protocol"},
		{nil, "usage"},
	} {
		err := probe(t.Context(), c.args)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("probe %q: %v, want %q", c.args, err, c.want)
		}
	}
}
