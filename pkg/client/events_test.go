package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"example.com/trawl/pkg/client"
)

// eventServer has a job of some records, whose stream breaks where it is told.
type eventServer struct {
	records int
	breaks  []string // what each stream does in its turn: how many events, and then "" ends, "|" cuts, "503" refuses
	asked   []string // the Last-Event-ID of each
}

func (s *eventServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	last := r.Header.Get("Last-Event-ID")
	s.asked = append(s.asked, last)
	turn := strconv.Itoa(s.records+1) + ""
	if len(s.breaks) > 0 {
		turn, s.breaks = s.breaks[0], s.breaks[1:]
	}
	if turn == "503" {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if strings.HasSuffix(last, "-end") {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprint(w, "retry: 2000\n\n:\n\n")
	done, _ := strconv.Atoi(strings.TrimSuffix(last, "-0"))
	events, cut := strings.CutSuffix(turn, "|")
	n, _ := strconv.Atoi(events)
	for range n {
		done++
		if done > s.records {
			_, _ = fmt.Fprintf(w, "id: %d-0-end\nevent: end\ndata: {\"state\":\"completed\"}\n\n", s.records)
			return
		}
		_, _ = fmt.Fprintf(w, "id: %d-0\nevent: record\ndata: {\"seq\":%d}\n\n", done, done)
	}
	if cut {
		_, _ = fmt.Fprintf(w, "id: %d-0\nevent: record\nda", done+1)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// Wherever a stream breaks or ends before its job, it goes on behind the last event, and each
// comes once.
func TestEvents(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		breaks []string
		last   string
		want   []int64
		end    bool
		err    string
	}{
		"whole":             {nil, "", []int64{1, 2, 3, 4, 5}, true, ""},
		"from the middle":   {nil, "3-0", []int64{4, 5}, true, ""},
		"behind the end":    {nil, "5-0-end", nil, false, ""},
		"ends before":       {[]string{"2", "1", "0", "1"}, "", []int64{1, 2, 3, 4, 5}, true, ""},
		"is cut":            {[]string{"2|", "0|", "2|"}, "", []int64{1, 2, 3, 4, 5}, true, ""},
		"is refused":        {[]string{"2|", "503", "503"}, "", []int64{1, 2, 3, 4, 5}, true, ""},
		"never says a word": {slices.Repeat([]string{"0"}, 20), "", nil, false, "ends the stream each time before any event"},
		"is always cut":     {append([]string{"1"}, slices.Repeat([]string{"0|"}, 20)...), "", []int64{1}, false, "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &eventServer{records: 5, breaks: tt.breaks}
			server := httptest.NewServer(s)
			defer server.Close()
			c, err := client.New(server.URL, "key", client.WithRetries(2))
			if err != nil {
				t.Fatal(err)
			}
			var got []int64
			var end bool
			var failed error
			for e, err := range c.Events(t.Context(), "j1", client.Behind(tt.last)) {
				switch {
				case err != nil:
					failed = err
				case e.Kind == client.JobRecorded:
					got = append(got, e.Record.Seq)
				case e.Kind == client.JobEnded:
					end = e.Job.State == client.Completed && e.ID == "5-0-end"
				default:
					t.Errorf("%+v", e)
				}
			}
			if !slices.Equal(got, tt.want) || end != tt.end {
				t.Errorf("records %v, end %v; want %v, %v", got, end, tt.want, tt.end)
			}
			if tt.err == "" && failed != nil || tt.err != "" && (failed == nil || !strings.Contains(failed.Error(), tt.err)) {
				t.Errorf("error %v, want %q", failed, tt.err)
			}
		})
	}
}

// Who reads no further, or whose context ends, is not held.
func TestEventsStop(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprint(w, "id: 0-0\nevent: status\ndata: {\"state\":\"running\"}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	c, err := client.New(server.URL, "key")
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range c.Events(t.Context(), "j1", client.Only(client.JobChanged)) {
		if err != nil || e.Job.State != client.Running {
			t.Errorf("%+v %v", e, err)
		}
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, err := range c.Events(ctx, "j1") {
		if cancel(); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the error of a context that ended is %v", err)
		}
	}
}
