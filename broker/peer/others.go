package peer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Roll knows which brokers there are.
type Roll interface {
	// Peers returns those that live, without this one, and without those that have never had
	// anything and that nobody reaches.
	Peers(ctx context.Context) ([]Peer, error)
	// Away returns the records of a kind, by the name of their bucket, that dead brokers have of a
	// tenant, of all tenants if that is empty.
	Away(ctx context.Context, kind, tenant string) ([]Record, error)
}

// Record is what the state of a broker has of something.
type Record struct {
	Broker string // by ID
	Value  []byte // JSON
}

// asker puts a question to a peer; *Forwarder does.
type asker interface {
	Ask(ctx context.Context, to Peer, about string, question []byte) ([]byte, error)
}

// Others are the other brokers, who are asked together for what each of them has. A nil pointer
// stands for a broker that is alone.
type Others struct {
	roll   Roll
	asker  asker
	logger hclog.Logger
}

// NewOthers returns the brokers on a roll, which a forwarder asks.
func NewOthers(roll Roll, forwarder *Forwarder, logger hclog.Logger) *Others {
	return &Others{roll: roll, asker: forwarder, logger: logger}
}

// askTimeout bounds the time in which all others have to answer. They answer from memory.
const askTimeout = 5 * time.Second

// Told is what one of the others has answered.
type Told[A any] struct {
	By     Peer
	Answer A
}

// SilentError says which of the others have not answered. For who cannot do without them it is
// an SB009: a list that lacks what they have would be taken for the whole one.
type SilentError struct{ Peers []Peer }

func (e *SilentError) Error() string {
	ids := make([]string, 0, len(e.Peers))
	for _, p := range e.Peers {
		ids = append(ids, fmt.Sprintf("%q", p.ID))
	}
	return "no answer from broker " + strings.Join(ids, ", ")
}

// Unwrap is what the client is told. It names no broker.
func (e *SilentError) Unwrap() error {
	return unavailable("Another broker, which has a part of it, does not answer at this moment.")
}

// Silent returns the brokers that have not answered by an error of AskAll, and whether nothing
// else is wrong.
func Silent(err error) ([]Peer, bool) {
	silent, ok := errors.AsType[*SilentError](err)
	if !ok {
		return nil, err == nil
	}
	return silent.Peers, true
}

// AskAll puts a question to all others at once, and returns their answers in the order of their
// IDs. The error is a SilentError where only some have answered, whose answers come with it; or
// it carries SB009, or is that of ctx.
func AskAll[A any](ctx context.Context, o *Others, about string, question any) ([]Told[A], error) {
	if o == nil {
		return nil, nil
	}
	asked, err := json.Marshal(question)
	if err != nil {
		return nil, fmt.Errorf("ask about %s: %w", about, err)
	}
	limited, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	peers, err := o.roll.Peers(limited)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%w (%w)", unavailable("It cannot be found out at this moment which other brokers there are."), err)
	}
	var (
		mu     sync.Mutex
		told   []Told[A]
		silent []Peer
		group  sync.WaitGroup
	)
	for _, p := range peers {
		group.Go(func() {
			var answer A
			text, err := o.asker.Ask(limited, p, about, asked)
			if err == nil {
				err = json.Unmarshal(text, &answer)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				silent = append(silent, p)
				if ctx.Err() == nil {
					o.logger.Warn("another broker did not answer", "broker", p.ID, "address", p.Address, "about", about, "error", err)
				}
				return
			}
			told = append(told, Told[A]{p, answer})
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	slices.SortFunc(told, func(a, b Told[A]) int { return cmp.Compare(a.By.ID, b.By.ID) })
	if len(silent) > 0 {
		slices.SortFunc(silent, func(a, b Peer) int { return cmp.Compare(a.ID, b.ID) })
		return told, &SilentError{silent}
	}
	return told, nil
}

// Away has a function look at the records of a kind, by the name of their bucket, that dead
// brokers have of a tenant, of all tenants if that is empty. What is on their disks is there
// again when they are. The error carries SB009, or is that of ctx.
func Away[R any](ctx context.Context, o *Others, kind, tenant string, look func(broker string, record R)) error {
	if o == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	all, err := o.roll.Away(limited, kind, tenant)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%w (%w)", unavailable("It cannot be found out at this moment what brokers have that are down."), err)
	}
	for _, one := range all {
		var record R
		if err := json.Unmarshal(one.Value, &record); err != nil {
			o.logger.Warn("a record of a broker that is down cannot be read, and is left out of a list", "broker", one.Broker, "kind", kind, "error", err)
			continue
		}
		look(one.Broker, record)
	}
	return nil
}

// Answerer answers one kind of question of a peer.
type Answerer func(ctx context.Context, question []byte) (any, error)

// Answering makes an Answerer of a function.
func Answering[Q, A any](answer func(ctx context.Context, question Q) (A, error)) Answerer {
	return func(ctx context.Context, text []byte) (any, error) {
		var question Q
		if err := json.Unmarshal(text, &question); err != nil {
			return nil, sdk.Errorf(sdk.CodeInvalidRequest, "read the question of a peer: %w", err)
		}
		return answer(ctx, question)
	}
}

// Answers are what a broker answers its peers, by what they ask about.
type Answers map[string]Answerer

// answerTimeout bounds an answer: whoever has asked waits no longer.
const answerTimeout = 2 * askTimeout

// Answer answers a question. The error carries SB015 for one of a newer version that this one
// does not understand.
func (a Answers) Answer(ctx context.Context, about string, question []byte) ([]byte, error) {
	answer, known := a[about]
	if !known {
		return nil, sdk.Errorf(sdk.CodeNotSupported, "this broker is not asked about %q", about)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	value, err := answer(ctx, question)
	if err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

// Merge puts sorted parts of a list together, and returns the first of them, as many as the
// limit says; 0 is no limit. more says that it left some out.
func Merge[T any](limit int, order func(a, b T) int, parts ...[]T) (merged []T, more bool) {
	merged = slices.Concat(parts...)
	slices.SortStableFunc(merged, order)
	if limit > 0 && len(merged) > limit {
		return merged[:limit], true
	}
	return merged, false
}
