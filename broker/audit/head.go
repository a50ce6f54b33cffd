package audit

import (
	"context"
	"crypto/sha256"
	"fmt"
)

// Head is the end of a broker's log at one moment, at its place in the one order of the heads of
// all brokers.
type Head struct {
	// Number in that order, from 1.
	Number uint64 `json:"number"`
	// Broker whose log it is, by its ID.
	Broker string `json:"broker"`
	// Seq and Hash are of the last line of the log.
	Seq  uint64 `json:"seq"`
	Hash string `json:"hash"`
	// Prev is the Sum of the head before in the order; zeros for the first.
	Prev string `json:"prev"`
}

// Sum chains a head to the next.
func (h Head) Sum() string {
	return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%d\n%s\n%d\n%s\n%s\n", h.Number, h.Broker, h.Seq, h.Hash, h.Prev)))
}

// noteHeads is what a line says of heads.
const noteHeads = "the ends of the logs of all brokers, in one order"

// NoteHeads writes down heads in the log of a broker, and returns when that is on disk.
func (l *Log) NoteHeads(ctx context.Context, broker string, heads []Head) error {
	e, err := newEntry(content{Event: EventNote, note: &note{Note: noteHeads, Broker: broker, Heads: heads}}, l.options.Now())
	if err != nil {
		return err
	}
	return l.await(ctx, e)
}
