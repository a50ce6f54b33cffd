package e2b

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// envd answers what E2B's daemon of that name does: processes and files.
type envd struct{ *Door }

// register registers its routes.
func (d envd) register() {
	d.registerProcesses()
	d.registerFilesystem()
	d.registerFiles()
	rest.Stream(d.api, rest.Operation{Method: http.MethodGet, Path: "/envs", AnyQuery: true}, d.environment)
	rest.Stream(d.api, rest.Operation{Method: http.MethodGet, Path: "/metrics", AnyQuery: true}, d.liveMetrics)
}

// asked is one request of a sandbox.
type asked struct {
	tenant tenant.Tenant
	info   instance.Info
	// timeout is what the client gives a process; 0 for none.
	timeout time.Duration
	// keepAlive is how long a stream may be silent.
	keepAlive time.Duration
	// failed is what the request was refused with, for the log.
	failed error
}

// note keeps an error for the log. What became of a process is none.
func (a *asked) note(err error) {
	if _, outcome := errors.AsType[*connect.Error](err); !outcome {
		a.failed = err
	}
}

// told is what the log is to say of the request. A client may leave: what it has started
// goes on.
func (a *asked) told(ctx context.Context) error {
	if a.failed == nil || ctx.Err() != nil {
		return nil //nolint:nilerr // see above
	}
	return rest.Told{Err: a.failed}
}

type askedKey struct{}

// askedOf is the request that a call of the Connect protocol came with.
func askedOf(ctx context.Context) *asked {
	a, _ := ctx.Value(askedKey{}).(*asked)
	return a
}

// named is the sandbox that a request names. authenticate has seen that its token is that
// sandbox's.
func (d *Door) named(r *http.Request, who tenant.Tenant) (instance.Info, error) {
	at, err := d.targetOfRequest(r)
	if err != nil {
		return instance.Info{}, err
	}
	id := at.sandbox
	info, err := d.sandbox(r.Context(), who, id)
	switch {
	case isNotFound(err):
		return info, &sandboxGone{error: err, sandbox: frontdoor.Clipped(id)}
	case err != nil:
		return info, err
	default:
		return d.awake(r.Context(), who, info)
	}
}

// What a request of the Connect protocol may say of its time.
const (
	headerConnectTimeout = "Connect-Timeout-Ms"
	headerKeepAlive      = "Keepalive-Ping-Interval"
	defaultKeepAlive     = 90 * time.Second
	maxKeepAlive         = 10 * time.Minute
)

// maxMessage bounds a message of a client, in bytes: input of a process is the largest. That of a
// message in a stream is smaller, for a stream may stay as long as its process.
const maxMessage, maxStreamed = 8 << 20, 256 << 10

// serveWhole is serve for calls with one message, whose body counts among those in memory.
func (d envd) serveWhole(handler http.Handler) func(http.ResponseWriter, *http.Request, rest.Call[rest.None]) error {
	serve := d.serve(handler)
	return func(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
		body, err := rest.ReadWhole(r, maxMessage)
		if err != nil {
			return err
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		return serve(w, r, c)
	}
}

// serve has a handler of the Connect protocol answer. The time that a client gives is that
// of the process, and not of the call.
func (d envd) serve(handler http.Handler) func(http.ResponseWriter, *http.Request, rest.Call[rest.None]) error {
	return func(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
		info, err := d.named(r, c.Tenant)
		if err != nil {
			return err
		}
		call := &asked{tenant: c.Tenant, info: info, keepAlive: defaultKeepAlive}
		if text := r.Header.Get(headerConnectTimeout); text != "" {
			if call.timeout, err = milliseconds(text); err != nil {
				return err
			}
			r.Header.Del(headerConnectTimeout)
		}
		if text := r.Header.Get(headerKeepAlive); text != "" {
			call.keepAlive = keepAliveOf(text)
		}
		call.failed = checkUser(r)
		handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), askedKey{}, call)))
		return call.told(r.Context())
	}
}

func milliseconds(text string) (time.Duration, error) {
	ms, err := strconv.ParseUint(text, 10, 33)
	if err != nil {
		return 0, refused(headerConnectTimeout, "must be a number of milliseconds")
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// keepAliveOf is how long a stream may be silent whose client asks for so many seconds;
// the usual time for what is no such number.
func keepAliveOf(text string) time.Duration {
	seconds, err := strconv.ParseUint(text, 10, 16)
	if err != nil || seconds == 0 {
		return defaultKeepAlive
	}
	return min(time.Duration(seconds)*time.Second, maxKeepAlive)
}

// options are those of each handler, for messages of up to most bytes.
func options(most int) []connect.HandlerOption {
	return []connect.HandlerOption{
		connect.WithCodec(jsonCodec{}),
		connect.WithCompression("gzip", nil, nil), // output would be held back by it
		connect.WithReadMaxBytes(most),
	}
}

// unary registers a call with one answer. Its errors are ours.
func unary[In, Out any](d envd, procedure string, handle func(ctx context.Context, call *asked, req *In) (*Out, error)) {
	handler := connect.NewUnaryHandler(procedure, func(ctx context.Context, req *connect.Request[In]) (*connect.Response[Out], error) {
		call := askedOf(ctx)
		if call.failed != nil {
			return nil, connectError(call.failed)
		}
		out, err := handle(ctx, call, req.Msg)
		if err != nil {
			call.note(err)
			return nil, connectError(err)
		}
		return connect.NewResponse(out), nil
	}, options(maxMessage)...)
	rest.Stream(d.api, rest.Operation{Method: http.MethodPost, Path: procedure, AnyQuery: true}, d.serveWhole(handler))
}

// streams registers a call with many answers.
func streams[In, Out any](d envd, procedure string, handle func(ctx context.Context, call *asked, req *In, send func(*Out) error) error) {
	handler := connect.NewServerStreamHandler(procedure, func(ctx context.Context, req *connect.Request[In], stream *connect.ServerStream[Out]) error {
		call := askedOf(ctx)
		err := call.failed
		if err == nil {
			err = handle(ctx, call, req.Msg, func(out *Out) error { return unheard(stream.Send(out)) })
		}
		if err != nil {
			call.note(err)
			return connectError(err)
		}
		return nil
	}, options(maxMessage)...)
	rest.Stream(d.api, rest.Operation{Method: http.MethodPost, Path: procedure, AnyQuery: true}, d.serveWhole(handler))
}

// unheard marks an error of the client's connection.
func unheard(err error) error {
	if err != nil {
		return lending.Unheard{Err: err}
	}
	return nil
}

// jsonCodec is JSON as E2B's own daemon writes it, without the spaces that protojson puts
// where it likes. Fields that are not known are refused: what they ask for would not be
// done.
type jsonCodec struct{}

// Name implements connect.Codec.
func (jsonCodec) Name() string { return "json" }

// Marshal implements connect.Codec.
func (jsonCodec) Marshal(message any) ([]byte, error) {
	text, err := protojson.Marshal(message.(proto.Message)) //nolint:forcetypeassert // connect's handlers have no others
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = json.Compact(&out, text)
	return out.Bytes(), err
}

// Unmarshal implements connect.Codec.
func (jsonCodec) Unmarshal(text []byte, message any) error {
	return protojson.Unmarshal(text, message.(proto.Message)) //nolint:forcetypeassert // as above
}

// coded is an error whose code of the Connect protocol is not the one that its own code
// usually has.
type coded struct {
	error
	code connect.Code
}

func (c *coded) Unwrap() error { return c.error }

// own is such an error of this door's, which is no failure of a provider's call.
func own(code connect.Code, err error) error { return lending.Unheard{Err: &coded{err, code}} }

// connectError puts an error into the form of the Connect protocol. The broker's own code
// stands behind the text.
func connectError(err error) error {
	if own, ok := errors.AsType[*connect.Error](err); ok {
		return own
	}
	r := rest.RefusalOf(err, "")
	code := connect.CodeUnknown
	switch r.Code {
	case sdk.CodeInvalidRequest:
		code = connect.CodeInvalidArgument
	case sdk.CodeNotFound:
		code = connect.CodeNotFound
	case sdk.CodeConflict:
		code = connect.CodeFailedPrecondition
	case sdk.CodeQuotaExceeded:
		code = connect.CodeResourceExhausted
	case sdk.CodeNotAuthenticated:
		code = connect.CodeUnauthenticated
	case sdk.CodeNotAllowed:
		code = connect.CodePermissionDenied
	case sdk.CodeNotSupported:
		code = connect.CodeUnimplemented
	case sdk.CodeUnavailable, sdk.CodeConnectionFailed, sdk.CodeNotInitialized:
		code = connect.CodeUnavailable
	case sdk.CodeInternal:
		code = connect.CodeInternal
	}
	if own, ok := errors.AsType[*coded](err); ok {
		code = own.code
	}
	return connect.NewError(code, errors.New(r.Detail+" ("+string(r.Code)+")"))
}

// pulse sends one message of a stream after the other, and a sign of life where there is
// none for a while.
type pulse[T any] struct {
	send  func(T) error
	pause time.Duration
	sign  T

	mu     sync.Mutex
	beat   *time.Timer // nil until the first message
	closed bool
}

// newPulse sends nothing yet. The caller closes it.
func newPulse[T any](send func(T) error, pause time.Duration, sign T) *pulse[T] {
	return &pulse[T]{send: send, pause: pause, sign: sign}
}

func (p *pulse[T]) tell(message T) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.beat == nil {
		p.beat = time.AfterFunc(p.pause, p.live)
	}
	p.beat.Reset(p.pause)
	return p.send(message)
}

// live gives a sign of life. An error is that of the connection, which ends the request
// too.
func (p *pulse[T]) live() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		_ = p.send(p.sign)
		p.beat.Reset(p.pause)
	}
}

// close ends the signs of life. Nothing is sent afterwards.
func (p *pulse[T]) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.beat != nil {
		p.beat.Stop()
	}
}

// user is the one user that a sandbox has.
const user = "user"

// checkUser refuses a user that a request names and that there is not. It is a name of the
// sandbox's, and no credential. A sandbox has one user, and nobody is root.
func checkUser(r *http.Request) error {
	name := r.URL.Query().Get("username")
	if encoded, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Basic "); ok {
		text, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return refused("Authorization", "must be a user in the form of HTTP's basic authentication")
		}
		name, _, _ = strings.Cut(string(text), ":")
	}
	if name != "" && name != user {
		return noUser()
	}
	return nil
}

func noUser() error {
	return sdk.Errorf(sdk.CodeNotAuthenticated, "There is no such user: a sandbox here has the user %q alone, and nobody is root.", user)
}

// pathOf is what a path of a client means: relative ones begin at home.
func pathOf(name string) (string, error) {
	switch rest, tilde := strings.CutPrefix(name, "~"); {
	case !utf8.ValidString(name):
		return "", refused("path", "must be UTF-8")
	case strings.ContainsRune(name, 0):
		return "", refused("path", "holds a NUL character, which no path can")
	case tilde && (rest == "" || rest[0] == '/'):
		return path.Join(home, rest), nil
	case tilde:
		return "", refused("path", "names the home of another user, and there is none")
	case strings.HasPrefix(name, "/"):
		return path.Clean(name), nil
	default:
		return path.Join(home, name), nil
	}
}

// environment answers none: what a sandbox was made with may be secret.
func (d envd) environment(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	if _, err := d.named(r, c.Tenant); err != nil {
		return err
	}
	return sendJSON(w, map[string]string{})
}

// envdMetrics are what a sandbox uses at this moment.
type envdMetrics struct {
	Timestamp   int64   `json:"ts"`
	CPUCount    int     `json:"cpu_count"`
	CPUUsedPct  float64 `json:"cpu_used_pct"`
	MemTotalMiB int64   `json:"mem_total_mib"`
	MemUsedMiB  int64   `json:"mem_used_mib"`
	MemTotal    int64   `json:"mem_total"`
	MemUsed     int64   `json:"mem_used"`
	MemCache    int64   `json:"mem_cache"`
	DiskUsed    int64   `json:"disk_used"`
	DiskTotal   int64   `json:"disk_total"`
}

func (d envd) liveMetrics(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	info, err := d.named(r, c.Tenant)
	if err != nil {
		return err
	}
	m, err := d.measure(r.Context(), c, info)
	if err != nil {
		return err
	}
	return sendJSON(w, envdMetrics{
		Timestamp: m.TimestampUnix, CPUCount: m.CPUCount, CPUUsedPct: m.CPUUsedPct, MemTotalMiB: m.MemTotal >> 20, MemUsedMiB: m.MemUsed >> 20,
		MemTotal: m.MemTotal, MemUsed: m.MemUsed, DiskUsed: m.DiskUsed, DiskTotal: m.DiskTotal,
	})
}

// sendJSON answers a request whose route streams.
func sendJSON(w http.ResponseWriter, value any) error { return sendAs(w, "application/json", value) }

// sendAs answers such a request with JSON that is called something else.
func sendAs(w http.ResponseWriter, mediaType string, value any) error {
	text, err := rest.EncodeJSON(value)
	if err != nil {
		return err
	}
	header := w.Header()
	header.Set("Content-Type", mediaType)
	header.Set("Content-Length", strconv.Itoa(len(text)))
	_, err = w.Write(text)
	return err
}
