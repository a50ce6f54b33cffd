package attackers

import (
	"testing"

	"gotest.tools/v3/assert"
)

// class is attacks that try one thing.
type class struct {
	name    string
	attacks []attack
}

// classes are all of them. Each has three at least: one request is a regression test,
// three are a class.
func classes(t *testing.T) []class {
	t.Helper()
	var all []class
	all = append(all, ofStrangers()...)
	all = append(all, ofFraming()...)
	all = append(all, ofTenants(t)...)
	all = append(all, ofFiles(t)...)
	all = append(all, ofPrograms()...)
	return append(all, ofAdministrators()...)
}

func TestTheRequestsOfAttackers(t *testing.T) {
	all := classes(t)
	requests := 0
	for _, class := range all {
		assert.Check(t, len(class.attacks) >= 3, class.name)
		requests += len(class.attacks)
	}
	assert.Assert(t, len(all) >= 15 && requests >= 60, "%d requests in %d classes", requests, len(all))
	s := start(t)
	for _, class := range all {
		t.Run(class.name, func(t *testing.T) {
			for _, a := range class.attacks {
				t.Run(a.name, func(t *testing.T) { s.carryOut(t, a) })
			}
			s.serves(t)
		})
	}
}
