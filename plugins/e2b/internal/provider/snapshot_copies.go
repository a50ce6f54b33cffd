package provider

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"regexp"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/e2bhttp"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/envd"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/snapshotbook"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/contexts"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/stream"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// source is a snapshot that a copy is made of.
type source struct {
	keptContent
	reference string
	memory    bool
}

func errNoSnapshot() *sdk.Error {
	e := sdk.FieldErrorf(sdk.CodeNotFound, "snapshot", "no such snapshot")
	e.NoEffect = true
	return e
}

// from opens the snapshot that a request for an instance names, and gives the request its
// template and its variables. It is nil for a fresh instance.
func (p *snapshots) from(ctx context.Context, req *sdk.CreateRequest) (*source, error) {
	if req.Snapshot == nil {
		return nil, nil
	}
	name := req.Snapshot.ID
	if _, own := p.ownSnapshot(name); !own {
		return nil, errNoSnapshot()
	}
	note, known, err := p.book.Read(name)
	switch {
	case err != nil:
		return nil, err
	case !known || note.Deleted:
		return nil, errNoSnapshot()
	case req.Template != "" && req.Template != note.Template:
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "template", "the snapshot is of the template %s", note.Template)
	}
	s := &source{reference: note.Reference, memory: note.Memory}
	err = snapshotbook.Unseal(req.Snapshot.Key, name, note.Sealed, &s.keptContent)
	if errors.Is(err, snapshotbook.ErrSealed) {
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "snapshot", "%w", err)
	}
	if err != nil {
		return nil, err
	}
	if s.reference == "" { // the answer to its creation was lost
		found, is, err := p.findSnapshot(ctx, name)
		switch {
		case err != nil:
			return nil, p.failure(err)
		case !is:
			return nil, errNoSnapshot()
		}
		s.reference = found.SnapshotID
	}
	env := map[string]string{}
	maps.Copy(env, s.Env)
	maps.Copy(env, req.Env)
	req.Template, req.Env = note.Template, env
	return s, nil
}

// explainCopy says why there is no copy.
func (p *snapshots) explainCopy(err error) error {
	e, answered := errors.AsType[*e2bhttp.Error](err)
	if answered && e.Own && e.Status == http.StatusNotFound {
		return errNoSnapshot()
	}
	return p.explainCreation(err)
}

// goesOn has a new sandbox go on from a snapshot as the contract says: of an execution that
// ran in the original nothing is left, contexts are known, and those in which code ran begin
// afresh. Without memory there are neither contexts nor commands.
func (sb *sandbox) goesOn(ctx context.Context, from *source) error {
	if from == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, sb.p.patience.ready+copyTimeout)
	defer cancel()
	err := sb.endJobs(ctx)
	var saved []contexts.Saved
	for _, c := range from.Contexts {
		if err != nil {
			break
		}
		switch {
		case !from.memory:
			_, err = again(ctx, sb.p.retry, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, sb.interpreter().DeleteContext(ctx, c.ID)
			})
		case c.Busy:
			c.Fresh = true
			_, err = again(ctx, sb.p.retry, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, sb.interpreter().RestartContext(ctx, c.ID)
			})
		}
		if lacksContext(err, c.ID) {
			err = nil
			continue
		}
		if from.memory {
			saved = append(saved, c.Saved)
		}
	}
	if err == nil && len(saved) > 0 {
		err = sb.p.contexts.Put(sb.id, saved)
	}
	if err != nil {
		return sb.p.redact.Error(sdk.Errorf(sdk.CodeCreateFailed, "the copy does not go on as it should: %w", err))
	}
	return nil
}

// ownTag is the form of the tags of our jobs: what a template has started by itself has none
// of the kind.
var ownTag = regexp.MustCompile(`^[0-9a-f]{32}$`)

// endJobs ends what executions and commands of the original have left in a copy.
func (sb *sandbox) endJobs(ctx context.Context) error {
	all, err := ask(ctx, sb, func(c *envd.Client) ([]envd.Listed, error) { return c.List(ctx) })
	if err != nil {
		return err
	}
	for _, one := range all {
		if !ownTag.MatchString(one.Tag) {
			continue
		}
		err := sb.tell(ctx, func(c *envd.Client) error { return c.SendSignal(ctx, one.PID, envd.SignalKill) })
		if err != nil && connectCode(err) != "not_found" {
			return err
		}
		if _, _, err := sb.script(ctx, stream.Sweep(one.Tag)); err != nil {
			return err
		}
	}
	return nil
}
