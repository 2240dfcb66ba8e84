package check

import (
	"testing"

	"example.com/trawl/pkg/crawltest"
)

func TestMain(m *testing.M) { crawltest.Main(m) }
