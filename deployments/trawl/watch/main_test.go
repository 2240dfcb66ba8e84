package watch

import (
	"testing"

	"github.com/mattn/go-runewidth"

	"example.com/trawl/pkg/crawltest"
)

func TestMain(m *testing.M) {
	// The locale of the machine must not decide how wide the lines of a bar are.
	runewidth.DefaultCondition.EastAsianWidth = false
	crawltest.Main(m)
}
