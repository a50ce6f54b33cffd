package main

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

func TestEventsOfTheFrontDoorMustBeWhole(t *testing.T) {
	line := func(n string) string { return `{"type":"stdout","text":"` + n + ` 1","timestamp":1}` + "\n\n" }
	const (
		begin = `{"type":"init","text":"c-1","timestamp":1}` + "\n\n"
		end   = `{"type":"execution_complete","timestamp":1}` + "\n\n"
	)
	for name, c := range map[string]struct{ stream, want string }{
		"whole":                  {begin + line("0") + `{"type":"ping","timestamp":1}` + "\n\n" + line("1") + end, ""},
		"a line that is missing": {begin + line("0") + line("2") + end, `line 1 is "2 1"`},
		"no last event":          {begin + line("0") + line("1"), "no last event"},
		"output that is lost":    {begin + line("0") + `{"type":"error","error":{"ename":"OutputLostError"},"timestamp":1}` + "\n\n", `an event "error"`},
		"too few":                {begin + line("0") + end, "1 of 2 lines came"},
	} {
		t.Run(name, func(t *testing.T) {
			to := &lineReader{wall: true}
			err := readDoorEvents(strings.NewReader(c.stream), to)
			if err == nil {
				err = to.end(2)
			}
			if c.want != "" {
				assert.ErrorContains(t, err, c.want)
				return
			}
			assert.NilError(t, err)
		})
	}
}
