package main

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

func TestLinesAreTimedAndMustBeWhole(t *testing.T) {
	var now unix.Timespec
	assert.NilError(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	ago := now.Nano() - time.Second.Nanoseconds()
	for name, c := range map[string]struct {
		pieces []string
		lines  int
		want   string // of the error
	}{
		"lines in pieces":         {[]string{"0 TIME\n1", " TIME\n"}, 2, ""},
		"a line that is missing":  {[]string{"0 TIME\n2 TIME\n"}, 2, `line 1 is "2 `},
		"a line that comes twice": {[]string{"0 TIME\n0 TIME\n"}, 2, `line 1 is "0 `},
		"a line without its time": {[]string{"0 \n"}, 1, `line 0 is "0 "`},
		"half a line at the end":  {[]string{"0 TIME\n", "1"}, 1, `1 of 1 lines came, and "1"`},
		"too few":                 {[]string{"0 TIME\n"}, 2, "1 of 2 lines came"},
	} {
		t.Run(name, func(t *testing.T) {
			var r lineReader
			var err error
			for _, piece := range c.pieces {
				if err = r.Stdout([]byte(strings.ReplaceAll(piece, "TIME", strconv.FormatInt(ago, 10)))); err != nil {
					break
				}
			}
			if err == nil {
				err = r.end(c.lines)
			}
			if c.want != "" {
				assert.ErrorContains(t, err, c.want)
				return
			}
			assert.NilError(t, err)
			for _, d := range r.delays {
				assert.Assert(t, d >= time.Second && d < time.Minute, d)
			}
		})
	}
}
