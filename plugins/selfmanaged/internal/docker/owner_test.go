package docker

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

func TestAProcessIsKnownByItsStart(t *testing.T) {
	me, err := self()
	assert.NilError(t, err)
	assert.Assert(t, alive(me))

	pid, start, _ := strings.Cut(me, "-")
	assert.Assert(t, !alive(pid+"-1"+start), "the process ID was used again")

	cmd := exec.Command("true")
	assert.NilError(t, cmd.Start())
	child, err := owner(strconv.Itoa(cmd.Process.Pid))
	assert.NilError(t, err)
	assert.NilError(t, cmd.Wait())
	assert.Assert(t, !alive(child))

	for _, odd := range []string{"", "-", "-1", "1", "x-1", "../self-1", "self-" + start} {
		assert.Assert(t, !alive(odd), odd)
	}
}
