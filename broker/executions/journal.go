package executions

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// maxKeptResult bounds what of a result is in the state file, in bytes. A larger one is
// lost with the process.
const maxKeptResult = 256 << 10

// record is what the state file has of a detached execution.
type record struct {
	Tenant   string          `json:"tenant"`
	ID       string          `json:"id"`
	Nonce    string          `json:"nonce"`
	State    State           `json:"state"`
	Instance string          `json:"instance,omitempty"`
	Provider string          `json:"provider,omitempty"`
	Created  time.Time       `json:"created"`
	Started  time.Time       `json:"started,omitzero"`
	Ended    time.Time       `json:"ended,omitzero"`
	Last     *lastEvent      `json:"last,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	Webhook  string          `json:"webhook,omitempty"`
	Hooked   string          `json:"hooked,omitempty"`
}

type lastEvent struct {
	Number int64           `json:"number"`
	Name   string          `json:"name"`
	Data   json.RawMessage `json:"data"`
}

// recordOf is called with the lock held.
func recordOf(x *Execution) record {
	r := record{
		Tenant: x.key.tenant, ID: x.key.id, Nonce: x.nonce, State: x.info.State, Instance: x.info.Instance, Provider: x.info.Provider,
		Created: x.info.Created, Started: x.info.Started, Ended: x.info.Ended, Webhook: x.webhook, Hooked: x.info.Webhook,
	}
	if last := x.info.Last; last.Name != "" {
		r.Last = &lastEvent{Number: last.Number, Name: last.Name, Data: last.Data}
	}
	if len(x.info.Result) <= maxKeptResult {
		r.Result = x.info.Result
	}
	return r
}

// save writes how it stands, with a report that is to be delivered.
func (k *Keeper) save(ctx context.Context, x *Execution, report []byte) error {
	k.mu.Lock()
	if x.gone {
		k.mu.Unlock()
		return nil
	}
	if report != nil && k.webhooks != nil && x.hook == "" {
		if x.hook = k.webhooks.NewID(x.key.tenant); x.hook == "" {
			x.info.Webhook = "failed"
		}
	}
	hook := x.hook
	if report == nil {
		hook = ""
	}
	r, name := recordOf(x), x.key
	k.mu.Unlock()
	err := k.store.Update(ctx, func(tx store.Tx) error {
		if k.forgotten(x) { // since; it is erased, and nobody else shall find it
			return nil
		}
		if err := store.Put(tx, store.Executions, name.String(), r); err != nil {
			return err
		}
		if hook == "" {
			return nil
		}
		return k.webhooks.Add(tx, hook, name.tenant, name.id, x.webhook, report)
	})
	if err == nil && hook != "" {
		k.webhooks.Added(hook, name.tenant)
	}
	return err
}

func (k *Keeper) forgotten(x *Execution) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return x.gone
}

// saveEnd writes the end, or leaves that to a later attempt.
func (k *Keeper) saveEnd(x *Execution) {
	ctx, cancel := k.writing()
	defer cancel()
	k.mu.Lock()
	info, needed := x.snapshot(), x.unsaved && !x.saving
	x.saving = x.saving || needed
	k.mu.Unlock()
	if !needed {
		return
	}
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		x.saving = false
	}()
	var report []byte
	if x.webhook != "" && k.report != nil {
		report = k.report(info)
	}
	if err := k.save(ctx, x, report); err != nil {
		k.logger.Warn("the end of a detached execution could not be written down, and is tried again", "tenant", x.key.tenant, "execution", x.key.id, "error", err)
		return
	}
	k.mu.Lock()
	x.unsaved = false
	k.makeRoom()
	k.mu.Unlock()
}

// writing is a context for what is written down although nobody waits, or nobody may stop
// it.
func (k *Keeper) writing() (context.Context, context.CancelFunc) {
	k.mu.Lock()
	timeout := k.limits.DiskTimeout
	k.mu.Unlock()
	if timeout <= 0 {
		timeout = 30 * time.Second
	}
	return context.WithTimeout(context.WithoutCancel(k.life), timeout)
}

// erase removes records, but of those whose names other executions have by now.
func (k *Keeper) erase(names ...key) {
	if len(names) == 0 {
		return
	}
	ctx, cancel := k.writing()
	defer cancel()
	err := k.store.Update(ctx, func(tx store.Tx) error {
		for _, name := range names {
			k.mu.Lock()
			again := k.all[name]
			k.mu.Unlock()
			if again != nil && again.detached {
				continue
			}
			if err := store.Delete(tx, store.Executions, name.String()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil { // the next process finds them and forgets them by their time
		k.logger.Warn("forgotten executions could not be taken out of the state file", "count", len(names), "error", err)
	}
}

// restore writes one again whose record another one has had, which was refused.
func (k *Keeper) restore(x *Execution) {
	if x == nil || !x.detached {
		return
	}
	ctx, cancel := k.writing()
	defer cancel()
	if err := k.save(ctx, x, nil); err != nil {
		k.logger.Warn("a detached execution could not be written down again", "tenant", x.key.tenant, "execution", x.key.id, "error", err)
	}
}

func (k *Keeper) eraseLater(name key) {
	k.tasks.Go("erase an execution", func() { k.erase(name) })
}

// load reads what earlier processes have left. What ran then is unknown now.
func (k *Keeper) load() error {
	var cut []*Execution
	err := k.store.View(func(tx store.Tx) error {
		return store.Each(tx, store.Executions, func(name string, r record, err error) error {
			if err != nil {
				k.logger.Warn("a record of a detached execution cannot be read, and is left out", "error", err)
				return nil
			}
			x := &Execution{
				keeper: k, key: key{r.Tenant, r.ID}, nonce: r.Nonce, loaded: true, detached: true, webhook: r.Webhook, cancel: func(error) {}, log: newLog(),
				info: Info{
					State: r.State, Instance: r.Instance, Provider: r.Provider, Created: r.Created, Started: r.Started, Ended: r.Ended,
					Result: r.Result, Webhook: r.Hooked,
				},
			}
			if r.Last != nil {
				x.info.Last = Event{Number: r.Last.Number, Name: r.Last.Name, Data: r.Last.Data}
				x.log.restore(x.info.Last)
			}
			if r.State == Running {
				x.info.State, x.info.Ended, x.unsaved = Unknown, k.now(), true
				cut = append(cut, x)
			}
			k.all[x.key] = x
			h := k.holding(x.key.tenant)
			h.detached = append(h.detached, x)
			k.charge(x, executionOverhead+x.log.cost+int64(len(x.info.Result)))
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("read the detached executions: %w", err)
	}
	for _, x := range cut {
		k.saveEnd(x)
	}
	return nil
}

func eventID(nonce string, number int64) string { return nonce + "-" + strconv.FormatInt(number, 10) }

var eventIDForm = regexp.MustCompile(`^([a-z2-7]{8})-([0-9]{1,18})$`)

// ParseEventID reads the ID of one of its events, as EventID has made it: the number of the
// event. Empty and 0 stand before all events. The error is SB010 for what is no such ID and
// SB014 for one of another execution, which had the name before. field is what of the
// request has it.
func (x *Execution) ParseEventID(field, text string) (int64, error) {
	if text == "" || text == "0" {
		return 0, nil
	}
	parts := eventIDForm.FindStringSubmatch(text)
	if parts == nil {
		return 0, sdk.FieldErrorf(sdk.CodeInvalidRequest, field, "is not the ID of an event, such as those of this stream, and not 0")
	}
	if parts[1] != x.nonce {
		return 0, sdk.FieldErrorf(sdk.CodeConflict, field, "is the ID of an event of another execution, which had this ID before")
	}
	number, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil { // 18 digits fit
		return 0, fmt.Errorf("read the ID of an event: %w", err)
	}
	info := x.Info()
	if number >= info.Next && info.Last.Name+string(info.State) != string(Unknown) {
		return 0, sdk.FieldErrorf(sdk.CodeInvalidRequest, field, "is the ID of an event that there was not yet")
	}
	return number, nil
}

// SetWebhook notes how the delivery of a report stands.
func (k *Keeper) SetWebhook(tenant, id, status string) {
	k.mu.Lock()
	x := k.all[key{tenant, id}]
	if x == nil || x.webhook == "" {
		k.mu.Unlock()
		return
	}
	x.info.Webhook = status
	k.mu.Unlock()
	ctx, cancel := k.writing()
	defer cancel()
	if err := k.save(ctx, x, nil); err != nil {
		k.logger.Debug("how a webhook stands could not be written down", "error", err)
	}
}
