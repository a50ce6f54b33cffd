package v1

import (
	"context"
	"net/http"
	"reflect"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/executions"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// hearing is what an execution is begun with beside what its request says.
type hearing struct {
	id       string
	listener instance.Listener
	taken    func()
}

// wanted is what a request says of how it is to be carried out.
type wanted struct {
	id       string
	detached bool
	webhook  *client.Webhook
}

// executor carries out one kind of requests for executions.
type executor[In any] struct {
	routes executionRoutes
	run    func(ctx context.Context, c rest.Call[In], from hearing) (instance.Execution, error)
	wanted func(In) wanted
}

// answer answers with one Execution, or with how a detached one stands.
func (x executor[In]) answer(ctx context.Context, c rest.Call[In]) (int, executionAnswer, error) {
	w := x.wanted(c.Body)
	if w.detached {
		e, err := x.detach(ctx, c, w)
		if err != nil {
			return 0, executionAnswer{}, err
		}
		info := infoOf(e.Info())
		c.SetHeader("Location", c.Mounted()+"/api/v1/executions/"+info.ExecutionID)
		return http.StatusAccepted, executionAnswer{accepted: &info}, nil
	}
	execution, err := x.attached(ctx, c, w, &told{keeps: true})
	return http.StatusOK, executionAnswer{execution: Execution(executionOf(execution))}, err
}

// stream answers with the events of an execution.
func (x executor[In]) stream(request context.Context, c rest.Call[In], to *rest.EventStream) error {
	w := x.wanted(c.Body)
	if w.detached {
		e, err := x.detach(request, c, w)
		if err != nil {
			return err
		}
		return follow(request, e, 0, to)
	}
	ctx, cancel := context.WithTimeout(request, c.Timeout)
	defer cancel()
	_, err := x.attached(ctx, c, w, &told{to: to})
	return err
}

// attached carries out an execution whose caller waits for it.
func (x executor[In]) attached(ctx context.Context, c rest.Call[In], w wanted, t *told) (instance.Execution, error) {
	if w.webhook != nil {
		return instance.Execution{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "webhook", "is for a detached execution")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	from := hearing{id: w.id, listener: t}
	if keeper := x.routes.keeper; keeper != nil {
		var err error
		if t.log, err = keeper.Begin(ctx, c.Tenant, executions.Start{ID: w.id, Cancel: cancel}); err != nil {
			return instance.Execution{}, err
		}
		from.id, from.taken = t.log.Info().ID, t.log.Taken
		defer t.abandoned()
	} else if t.to == nil {
		t.keeps, from.listener = false, nil
	}
	execution, err := x.run(ctx, c, from)
	t.fill(&execution)
	return t.ended(ctx, execution, err, c.RequestID)
}

// errNotKept refuses what takes a keeper where there is none.
var errNotKept = sdk.FieldErrorf(sdk.CodeInvalidRequest, "detached", "this broker remembers no executions")

// detach begins an execution that nobody waits for, and returns when it is taken on.
func (x executor[In]) detach(ctx context.Context, c rest.Call[In], w wanted) (*executions.Execution, error) {
	keeper := x.routes.keeper
	if keeper == nil {
		return nil, errNotKept
	}
	start := executions.Start{ID: w.id, Detached: true}
	if w.webhook != nil {
		if err := x.routes.allowed(c.Tenant, w.webhook.URL); err != nil {
			return nil, err
		}
		start.Webhook = w.webhook.URL
	}
	// It is looked for at the broker that has taken it.
	run, cancel := context.WithCancelCause(peer.WithPlacing(context.WithoutCancel(ctx), false))
	start.Cancel = cancel
	e, err := keeper.Begin(ctx, c.Tenant, start)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	// Until it is taken on, it is the request's.
	stop := context.AfterFunc(ctx, func() { cancel(ctx.Err()) })
	taken, refused := make(chan struct{}), make(chan error, 1)
	// refuse tells who waits that it was not taken on, also where it has panicked.
	refuse := func(err error) {
		select {
		case <-taken:
		default:
			stop()
			e.Abandon()
			refused <- err
		}
	}
	begun := sync.OnceFunc(func() {
		stop()
		e.Taken()
		close(taken)
	})
	keeper.Go(func(life context.Context) {
		t := &told{log: e}
		defer t.abandoned()
		defer cancel(nil)
		defer context.AfterFunc(life, func() { cancel(context.Cause(life)) })()
		ctx, timeout := context.WithTimeout(run, c.Timeout)
		defer timeout()
		var execution instance.Execution
		err := error(sdk.Errorf(sdk.CodeInternal, "the execution was given up"))
		defer func() { refuse(err) }()
		execution, err = x.run(ctx, c, hearing{id: e.Info().ID, listener: t, taken: begun})
		select {
		case <-taken:
			_, _ = t.ended(ctx, execution, err, c.RequestID) // it is in the log
		default:
		}
	})
	select {
	case <-taken:
		return e, nil
	case err := <-refused:
		return nil, err
	}
}

// abandoned ends an execution that a panic has ended.
func (t *told) abandoned() {
	if t.log == nil || t.log.Info().State != executions.Running || t.log.Forgotten() {
		return
	}
	t.fail(sdk.Errorf(sdk.CodeInternal, "the execution was given up"), "")
}

// executionAnswer is an Execution, or what is said of one that was detached.
type executionAnswer struct {
	execution Execution
	accepted  *client.ExecutionInfo
}

// Schema implements rest.SchemaProvider.
func (executionAnswer) Schema(r rest.Registry) *rest.Schema {
	return r.Schema(reflect.TypeFor[Execution](), true, "Execution")
}

// EncodeJSON implements rest.Encoder.
func (a executionAnswer) EncodeJSON() ([]byte, error) {
	if a.accepted != nil {
		return rest.EncodeJSON(a.accepted)
	}
	return a.execution.EncodeJSON()
}

// allowed says whether a tenant's results may be posted there.
func (h executionRoutes) allowed(who tenant.Tenant, url string) error {
	if h.webhooks == nil {
		return sdk.FieldErrorf(sdk.CodeNotAllowed, "webhook", "this broker has no webhooks")
	}
	return h.webhooks.Check(who.Name, url)
}
