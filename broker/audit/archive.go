package audit

import (
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// maxSearches is how many searches there are at once: each reads as fast as it can.
const maxSearches = 2

// Archive is the files of a log that is being written, for people who look into them. Its
// methods may be called concurrently.
type Archive struct {
	log      *Log
	searches chan struct{}
	// How long a search and a check take.
	searchTime, checkTime time.Duration

	checking sync.Mutex              // held by the one who checks
	files    map[uint64]*checkedFile // by the number of the first line; guarded by checking

	mu   sync.Mutex
	last Chain // guarded by mu
}

// NewArchive returns the archive of a log. It needs no end.
func NewArchive(log *Log) *Archive {
	return &Archive{
		log: log, searches: make(chan struct{}, maxSearches), searchTime: searchTime, checkTime: checkTime,
		files: map[uint64]*checkedFile{},
	}
}

// beginSearch makes sure that there are not too many.
func (a *Archive) beginSearch() (done func(), err error) {
	select {
	case a.searches <- struct{}{}:
		return func() { <-a.searches }, nil
	default:
		busy := sdk.Errorf(sdk.CodeQuotaExceeded, "the audit log is being searched %d times already; wait until one search is done", maxSearches)
		busy.RetryAfter = time.Second
		return nil, busy
	}
}
