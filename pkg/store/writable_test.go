package store_test

import (
	"strings"
	"testing"

	"example.com/trawl/pkg/crawl"
	"example.com/trawl/pkg/crawltest"
	"example.com/trawl/pkg/store"
)

// A Redis that takes no writes takes no work.
func TestReadyWantsWrites(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]string{
		"a replica":     "replicaof 127.0.0.1 1",
		"lost replicas": "config set min-replicas-to-write 1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := crawltest.Private(t)
			s := store.New(r.Client, store.Options{})
			if err := s.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
			var args []any
			for f := range strings.FieldsSeq(set) {
				args = append(args, f)
			}
			if err := r.Client.Do(t.Context(), args...).Err(); err != nil {
				t.Fatal(err)
			}
			if err := s.Ready(t.Context()); crawl.CodeOf(err) != crawl.CodeUnavailable {
				t.Errorf("%v", err)
			}
		})
	}
}
