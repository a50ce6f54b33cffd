package processtable

import (
	"testing"

	"gotest.tools/v3/assert"
)

func FuzzParseStat(f *testing.F) {
	for _, seed := range []string{"", "1 (a) S 2 3 4", "1 (a) b) Z 2 3", "1 (a", "1 (a) S x 3", "1 (a) S 2 x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, stat string) {
		p, ok := parseStat(7, stat)
		assert.Assert(t, !ok || p.PID == 7)
	})
}

func TestANameCannotForgeAParent(t *testing.T) {
	p, ok := parseStat(7, "7 (x) R 1 1 1 (y) Z 42 43 44 0 -1")
	assert.Assert(t, ok)
	assert.Equal(t, p, Process{PID: 7, Parent: 42, Group: 43, Zombie: true})
}

func TestBelowFindsAllGenerations(t *testing.T) {
	all := []Process{{PID: 5, Parent: 4}, {PID: 4, Parent: 2}, {PID: 2, Parent: 1}, {PID: 3, Parent: 1}, {PID: 6, Parent: 6}}
	found := Below(all, func(p Process) bool { return p.Parent == 1 && p.PID != 3 })
	var pids []int
	for _, p := range found {
		pids = append(pids, p.PID)
	}
	assert.DeepEqual(t, pids, []int{2, 4, 5})
}
