package lending

import (
	"testing"

	"gotest.tools/v3/assert"
)

// This test is inside the package: what a header means is nobody else's matter.

func TestARangeIsOneOrAll(t *testing.T) {
	const size = 10
	for header, want := range map[string]struct {
		given       bool
		from, count int64
	}{
		"":                                {false, 0, 10},
		"bytes=0-0":                       {true, 0, 1},
		"bytes=2-4":                       {true, 2, 3},
		"bytes=5-":                        {true, 5, 5},
		"bytes=-3":                        {true, 7, 3},
		"bytes=-30":                       {true, 0, 10},
		"bytes=8-100":                     {true, 8, 2},
		"bytes=10-":                       {true, 10, 0},
		"bytes=0-9223372036854775807":     {false, 0, 10},
		"bytes=-0":                        {false, 0, 10},
		"bytes=4-2":                       {false, 0, 10},
		"bytes=1-2,4-5":                   {false, 0, 10},
		"bytes=+1-2":                      {false, 0, 10},
		"bytes=-":                         {false, 0, 10},
		"bytes=1":                         {false, 0, 10},
		"lines=1-2":                       {false, 0, 10},
		"bytes=99999999999999999999-":     {false, 0, 10},
		"bytes=0-99999999999999999999999": {false, 0, 10},
	} {
		r := parseRange(header)
		from, count := r.of(size)
		assert.Check(t, r.given == want.given && from == want.from && count == want.count, "%s: %v %d %d", header, r.given, from, count)
	}
}

func FuzzRange(f *testing.F) {
	f.Add("bytes=1-2", int64(10))
	f.Add("bytes=-9223372036854775807", int64(0))
	f.Fuzz(func(t *testing.T, header string, size int64) {
		if size < 0 {
			return
		}
		r := parseRange(header)
		from, count := r.of(size)
		assert.Assert(t, from >= 0 && count >= 0 && from+count <= size)
		assert.Assert(t, r.given || from == 0 && count == size)
	})
}
