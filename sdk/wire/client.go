package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"unicode"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

// Client is a Provider whose other end is a plugin. It has the methods of every
// capability; which of them the plugin has, Describe tells. It trusts nothing that the
// plugin says: an answer that breaks the contract becomes an *sdk.Error with
// CodeInternal that blames the plugin.
type Client struct {
	rpc         providerv1.ProviderServiceClient
	interrupts  providerv1.InterruptServiceClient
	contexts    providerv1.ContextServiceClient
	commands    providerv1.CommandServiceClient
	files       providerv1.FileServiceClient
	search      providerv1.FileSearchServiceClient
	watch       providerv1.FileWatchServiceClient
	modes       providerv1.FileModeServiceClient
	archives    providerv1.ArchiveServiceClient
	ports       providerv1.PortServiceClient
	pause       providerv1.PauseServiceClient
	lifetime    providerv1.LifetimeServiceClient
	metrics     providerv1.MetricsServiceClient
	packages    providerv1.PackageServiceClient
	snapshots   providerv1.SnapshotServiceClient
	volumes     providerv1.VolumeServiceClient
	templates   providerv1.TemplateServiceClient
	network     providerv1.NetworkServiceClient
	adoption    providerv1.AdoptionServiceClient
	description sdk.Description
}

var (
	_ sdk.Provider         = (*Client)(nil)
	_ sdk.Closer           = (*Client)(nil)
	_ sdk.Drainer          = (*Client)(nil)
	_ sdk.Contexts         = (*Client)(nil)
	_ sdk.Commands         = (*Client)(nil)
	_ sdk.Files            = (*Client)(nil)
	_ sdk.FileSearcher     = (*Client)(nil)
	_ sdk.FileWatcher      = (*Client)(nil)
	_ sdk.FileModeSetter   = (*Client)(nil)
	_ sdk.Archiver         = (*Client)(nil)
	_ sdk.Ports            = (*Client)(nil)
	_ sdk.Pauser           = (*Client)(nil)
	_ sdk.PauseReleaser    = (*Client)(nil)
	_ sdk.TTLSetter        = (*Client)(nil)
	_ sdk.Meter            = (*Client)(nil)
	_ sdk.PackageInstaller = (*Client)(nil)
	_ sdk.Snapshotter      = (*Client)(nil)
	_ sdk.VolumeKeeper     = (*Client)(nil)
	_ sdk.TemplateBuilder  = (*Client)(nil)
	_ sdk.NetworkGovernor  = (*Client)(nil)
	_ sdk.Adopter          = (*Client)(nil)
)

// NewClient asks the plugin to describe itself, checks the answer and returns a
// client. The description does not change during the plugin's life.
func NewClient(ctx context.Context, conn grpc.ClientConnInterface) (*Client, error) {
	c := InstanceClient(conn)
	resp, err := c.rpc.Describe(ctx, &providerv1.DescribeRequest{}, grpc.MaxCallRecvMsgSize(maxDescription))
	if err != nil {
		return nil, fmt.Errorf("describe: %w", DecodeError(err))
	}
	if c.description, err = decodeDescription(resp); err != nil {
		return nil, sdk.Errorf(sdk.CodeInternal, "the plugin's description is not acceptable: %w", err)
	}
	return c, nil
}

// InstanceClient returns a client of something that serves capabilities only: an
// agent inside an instance, to which a provider passes its calls on. It describes
// nothing.
func InstanceClient(conn grpc.ClientConnInterface) *Client {
	return &Client{
		rpc:        providerv1.NewProviderServiceClient(conn),
		interrupts: providerv1.NewInterruptServiceClient(conn),
		contexts:   providerv1.NewContextServiceClient(conn),
		commands:   providerv1.NewCommandServiceClient(conn),
		files:      providerv1.NewFileServiceClient(conn),
		search:     providerv1.NewFileSearchServiceClient(conn),
		watch:      providerv1.NewFileWatchServiceClient(conn),
		modes:      providerv1.NewFileModeServiceClient(conn),
		archives:   providerv1.NewArchiveServiceClient(conn),
		ports:      providerv1.NewPortServiceClient(conn),
		pause:      providerv1.NewPauseServiceClient(conn),
		lifetime:   providerv1.NewLifetimeServiceClient(conn),
		metrics:    providerv1.NewMetricsServiceClient(conn),
		packages:   providerv1.NewPackageServiceClient(conn),
		snapshots:  providerv1.NewSnapshotServiceClient(conn),
		volumes:    providerv1.NewVolumeServiceClient(conn),
		templates:  providerv1.NewTemplateServiceClient(conn),
		network:    providerv1.NewNetworkServiceClient(conn),
		adoption:   providerv1.NewAdoptionServiceClient(conn),
	}
}

// Describe returns what the plugin said when the client was made.
func (c *Client) Describe() sdk.Description { return c.description }

// Configure implements sdk.Provider.
func (c *Client) Configure(ctx context.Context, req sdk.ConfigureRequest) error {
	settings, err := EncodeSettings(req.Settings)
	if err != nil {
		return sdk.Errorf(sdk.CodeInternal, "encode settings: %w", err)
	}
	_, err = c.rpc.Configure(ctx, &providerv1.ConfigureRequest{
		Label: req.Label, BrokerId: req.BrokerID, StateDir: req.StateDir, Settings: settings,
		AbandonedDirs: req.AbandonedDirs, KeepDir: req.KeepDir,
	})
	return DecodeError(err)
}

// Health implements sdk.Provider.
func (c *Client) Health(ctx context.Context) (sdk.Health, error) {
	resp, err := c.rpc.Health(ctx, &providerv1.HealthRequest{})
	if err != nil {
		return sdk.Health{}, DecodeError(err)
	}
	if len(resp.GetReason()) > maxText {
		return sdk.Health{}, misbehaved("gave a reason for its health that is too long")
	}
	if err := boundedFacts(resp.GetDetails()); err != nil {
		return sdk.Health{}, err
	}
	metrics, err := decodeMetrics(resp.GetMetrics())
	if err != nil {
		return sdk.Health{}, err
	}
	return sdk.Health{Healthy: resp.GetHealthy(), Reason: resp.GetReason(), Details: resp.GetDetails(), Metrics: metrics}, nil
}

// Create implements sdk.Provider.
func (c *Client) Create(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
	wr := &providerv1.CreateRequest{
		Template: req.Template, Labels: req.Labels, Env: req.Env,
		Ttl: durationpb.New(req.TTL), IdempotencyKey: req.IdempotencyKey, Reuse: req.Reuse,
		Volumes: encodeMounts(req.Volumes), Image: req.Image, Network: EncodeNetwork(req.Network),
	}
	if req.MaxQueue != nil {
		wr.MaxQueue = durationpb.New(*req.MaxQueue)
	}
	if s := req.Snapshot; s != nil {
		wr.Snapshot = &providerv1.SnapshotSource{Id: s.ID, Key: s.Key}
	}
	resp, err := c.rpc.Create(ctx, wr)
	if err != nil {
		return sdk.Instance{}, DecodeError(err)
	}
	return decodeInstance(resp.GetInstance())
}

// encodeMounts encodes the volumes of an instance.
func encodeMounts(mounts []sdk.VolumeMount) (list []*providerv1.VolumeMount) {
	for _, m := range mounts {
		list = append(list, &providerv1.VolumeMount{VolumeId: m.VolumeID, Path: m.Path, ReadOnly: m.ReadOnly})
	}
	return list
}

// Execute implements sdk.Provider.
func (c *Client) Execute(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
	// A stream that is left before its end leaks unless its context ends.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wr := &providerv1.ExecuteRequest{
		InstanceId: req.InstanceID, ExecutionId: req.ExecutionID,
		Language: string(req.Language), Code: req.Code, Arguments: req.Arguments,
		Env: req.Env, Timeout: durationpb.New(req.Timeout), OutputLimit: req.OutputLimit, ContextId: req.ContextID,
	}
	if a := req.Artifacts; a != nil {
		wr.Artifacts = &providerv1.ArtifactLimits{Files: a.Files, MaxCount: int32(a.MaxCount), MaxBytes: a.MaxBytes, MaxTotalBytes: a.MaxTotalBytes}
	}
	stream, err := c.rpc.Execute(ctx, wr, executionLimit(req.OutputLimit, req.Artifacts))
	if err != nil {
		return sdk.ExecuteResult{}, DecodeError(err)
	}
	checked := newCheckedOutput(out, req.OutputLimit, req.Artifacts)
	var quiet silence
	for {
		event, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return sdk.ExecuteResult{}, misbehaved("ended an execution without a result")
		case err != nil:
			return sdk.ExecuteResult{}, DecodeError(err)
		}
		said := 0
		switch e := event.GetEvent().(type) {
		case *providerv1.ExecuteResponse_Stdout:
			said, err = len(e.Stdout), checked.Stdout(e.Stdout)
		case *providerv1.ExecuteResponse_Stderr:
			said, err = len(e.Stderr), checked.Stderr(e.Stderr)
		case *providerv1.ExecuteResponse_Artifact:
			said, err = 1, checked.artifact(e.Artifact)
		case *providerv1.ExecuteResponse_Result:
			return lastly(ctx, cancel, stream, func() (sdk.ExecuteResult, error) { return DecodeResult(e.Result, req.OutputLimit) })
		default: // an event of a later minor version
		}
		if err == nil {
			err = quiet.broken(said)
		}
		if err != nil {
			return sdk.ExecuteResult{}, err
		}
	}
}

// Destroy implements sdk.Provider.
func (c *Client) Destroy(ctx context.Context, instanceID string) error {
	_, err := c.rpc.Destroy(ctx, &providerv1.DestroyRequest{InstanceId: instanceID})
	return DecodeError(err)
}

// List implements sdk.Provider.
func (c *Client) List(ctx context.Context) ([]sdk.Instance, error) {
	resp, err := c.rpc.List(ctx, &providerv1.ListRequest{}, grpc.MaxCallRecvMsgSize(maxList))
	if err != nil {
		return nil, DecodeError(err)
	}
	return decodeInstances(resp.GetInstances())
}

// decodeInstances checks a list of instances.
func decodeInstances(list []*providerv1.Instance) ([]sdk.Instance, error) {
	instances, err := decodeList(list, decodeInstance)
	if err != nil {
		return nil, err
	}
	return instances, listedOnce("instance", instances, func(i sdk.Instance) string { return i.ID })
}

// listedOnce refuses a list that has one ID twice.
func listedOnce[T any](what string, list []T, id func(T) string) error {
	seen := make(map[string]bool, len(list))
	for _, item := range list {
		if seen[id(item)] {
			return misbehaved(fmt.Sprintf("listed the %s %q twice", what, id(item)))
		}
		seen[id(item)] = true
	}
	return nil
}

// Drain implements sdk.Drainer.
func (c *Client) Drain(ctx context.Context) error {
	_, err := c.rpc.Drain(ctx, &providerv1.DrainRequest{})
	return DecodeError(err)
}

// Close implements sdk.Closer.
func (c *Client) Close(ctx context.Context) error {
	_, err := c.rpc.Close(ctx, &providerv1.CloseRequest{})
	return DecodeError(err)
}

func misbehaved(what string) error {
	return sdk.Errorf(sdk.CodeInternal, "the plugin %s", what)
}

// onceCompiled compiles a form at its first use. A guest, which is in every sandbox, checks
// none of these, and 255 repeated characters take a quarter of a megabyte.
func onceCompiled(form string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(form) })
}

var (
	pluginName = onceCompiled(`^[a-z][a-z0-9_]{0,62}$`)
	wordName   = onceCompiled(`^[a-z0-9][a-z0-9_.+-]{0,62}$`)
	// instanceID keeps IDs safe in logs and URLs.
	instanceID = onceCompiled(`^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$`)
)

const (
	// maxNames bounds languages, templates and capabilities.
	maxNames = 100
	// maxFacts bounds labels, metadata and health details, maxText each text
	// that is shown to people.
	maxFacts = 100
	maxText  = 4 << 10
)

func boundedFacts(maps ...map[string]string) error {
	for _, m := range maps {
		if len(m) > maxFacts {
			return misbehaved(fmt.Sprintf("sent more than %d labels, metadata or details", maxFacts))
		}
		for key, value := range m {
			if len(key) > maxText || len(value) > maxText {
				return misbehaved(fmt.Sprintf("sent a label, metadata or detail above %d bytes", maxText))
			}
		}
	}
	return nil
}

func decodeMetrics(wms []*providerv1.Metric) ([]sdk.Metric, error) {
	if len(wms) > sdk.MaxMetrics {
		return nil, misbehaved(fmt.Sprintf("answered more than %d metrics", sdk.MaxMetrics))
	}
	var metrics []sdk.Metric
	for _, wm := range wms {
		metrics = append(metrics, sdk.Metric{
			Name: wm.GetName(), Help: wm.GetHelp(), Kind: sdk.MetricKind(wm.GetKind()),
			Labels: wm.GetLabels(), Value: wm.GetValue(),
		})
	}
	if err := CheckMetrics(metrics); err != nil {
		return nil, misbehaved("answered metrics that are not acceptable: " + err.Error())
	}
	return metrics, nil
}

func decodeDescription(resp *providerv1.DescribeResponse) (sdk.Description, error) {
	d := sdk.Description{Name: resp.GetName(), Version: resp.GetVersion(), Summary: resp.GetSummary(), Icon: resp.GetIcon(), Tags: resp.GetTags(), Ephemeral: resp.GetEphemeral()}
	if !pluginName().MatchString(d.Name) {
		return d, fmt.Errorf("name %.70q is not of the form %s", d.Name, pluginName())
	}
	if len(d.Version) > maxText || len(d.Summary) > maxText {
		return d, fmt.Errorf("version or summary is longer than %d bytes", maxText)
	}
	if !onePrintableLine(d.Version) || !onePrintableLine(d.Summary) {
		return d, errors.New("version or summary is more than one line of printable text")
	}
	if err := CheckAppearance(d.Icon, d.Tags); err != nil {
		return d, err
	}
	if len(resp.GetLanguages()) > maxNames || len(resp.GetTemplates()) > maxNames || len(resp.GetCapabilities()) > maxNames {
		return d, fmt.Errorf("more than %d languages, templates or capabilities", maxNames)
	}
	var err error
	if d.Languages, err = names[sdk.Language](resp.GetLanguages()); err != nil {
		return d, fmt.Errorf("languages: %w", err)
	}
	if d.Capabilities, err = names[sdk.Capability](resp.GetCapabilities()); err != nil {
		return d, fmt.Errorf("capabilities: %w", err)
	}
	for _, wt := range resp.GetTemplates() {
		t := sdk.Template{Name: wt.GetName(), Description: wt.GetDescription()}
		if !wordName().MatchString(t.Name) {
			return d, fmt.Errorf("template %.70q is not of the form %s", t.Name, wordName())
		}
		if len(t.Description) > maxText || !onePrintableLine(t.Description) {
			return d, fmt.Errorf("template %q: the description is more than one line of printable text, or above %d bytes", t.Name, maxText)
		}
		if t.Languages, err = names[sdk.Language](wt.GetLanguages()); err != nil {
			return d, fmt.Errorf("template %q: %w", t.Name, err)
		}
		d.Templates = append(d.Templates, t)
	}
	for _, wf := range resp.GetSchema() {
		d.Schema = append(d.Schema, decodeField(wf, 0))
	}
	return d, d.Schema.Validate()
}

// maxFieldDepth is how deep fields are followed into their items and blocks; what is
// deeper no schema may have, and what is left of it is refused.
const maxFieldDepth = 5

func decodeField(wf *providerv1.Field, depth int) sdk.Field {
	f := sdk.Field{
		Name: wf.GetName(), Type: sdk.FieldType(wf.GetType()), Required: wf.GetRequired(), Secret: wf.GetSecret(), FileOnly: wf.GetFileOnly(),
		Default: wf.GetDefault().AsInterface(), Options: wf.GetOptions(), Min: wf.Min, Max: wf.Max, Pattern: wf.GetPattern(),
		Label: wf.GetLabel(), Description: wf.GetDescription(), Placeholder: wf.GetPlaceholder(),
	}
	if wf.GetItems() != nil && depth < maxFieldDepth {
		items := decodeField(wf.GetItems(), depth+1)
		f.Items = &items
	}
	f.Repeated = wf.GetRepeated()
	if depth < maxFieldDepth {
		for _, inner := range wf.GetFields() {
			f.Fields = append(f.Fields, decodeField(inner, depth+1))
		}
	}
	return f
}

// onePrintableLine is for what is shown to people in one line, on terminals too.
func onePrintableLine(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

func names[T ~string](words []string) ([]T, error) {
	if len(words) > maxNames {
		return nil, fmt.Errorf("more than %d", maxNames)
	}
	list := make([]T, 0, len(words))
	for _, w := range words {
		if !wordName().MatchString(w) {
			return nil, fmt.Errorf("%.70q is not of the form %s", w, wordName())
		}
		list = append(list, T(w))
	}
	return list, nil
}

func decodeInstance(wi *providerv1.Instance) (sdk.Instance, error) {
	if !instanceID().MatchString(wi.GetId()) {
		return sdk.Instance{}, misbehaved(fmt.Sprintf("gave an instance the ID %.70q, which is not of the form %s", wi.GetId(), instanceID()))
	}
	if err := boundedFacts(wi.GetLabels(), wi.GetMetadata()); err != nil {
		return sdk.Instance{}, err
	}
	if len(wi.GetTemplate()) > maxText {
		return sdk.Instance{}, misbehaved("gave an instance a template that is too long")
	}
	i := sdk.Instance{ID: wi.GetId(), Template: wi.GetTemplate(), Labels: wi.GetLabels(), Metadata: wi.GetMetadata()}
	i.CreatedAt, i.ExpiresAt = decodeTime(wi.GetCreatedAt()), decodeTime(wi.GetExpiresAt())
	return i, nil
}

// checkedOutput passes on what a plugin sends, and ends a call that sends more than it
// may. It is the one place where the broker counts: package serve has cut at the source.
type checkedOutput struct {
	out       sdk.Output
	room      [2]int64
	artifacts *sdk.ArtifactLimits
	count     int
	bytes     int64
}

func newCheckedOutput(out sdk.Output, limit int64, artifacts *sdk.ArtifactLimits) *checkedOutput {
	return &checkedOutput{out: out, room: [2]int64{limit, limit}, artifacts: artifacts}
}

func (c *checkedOutput) Stdout(p []byte) error {
	if c.room[0] -= int64(len(p)); c.room[0] < 0 {
		return misbehaved("sent more output than the limit")
	}
	return c.out.Stdout(p)
}

func (c *checkedOutput) Stderr(p []byte) error {
	if c.room[1] -= int64(len(p)); c.room[1] < 0 {
		return misbehaved("sent more output than the limit")
	}
	return c.out.Stderr(p)
}

// plainHeader reports whether a text can stand in a header as it is.
func plainHeader(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

func (c *checkedOutput) artifact(wa *providerv1.Artifact) error {
	if c.artifacts == nil {
		return misbehaved("sent an artifact that nobody asked for")
	}
	// One more than the limit tells that there were more.
	if c.count++; c.count > c.artifacts.MaxCount+1 {
		return misbehaved("sent more artifacts than the limit")
	}
	a := sdk.Artifact{
		Kind: sdk.ArtifactKind(wa.GetKind()), Name: wa.GetName(), MIMEType: wa.GetMimeType(), Data: wa.GetData(),
		Size: wa.GetSize(), Group: int(wa.GetGroup()), Refused: wa.GetRefused(),
	}
	switch {
	case a.Kind != sdk.ArtifactResult && a.Kind != sdk.ArtifactDisplay && a.Kind != sdk.ArtifactFile:
		return misbehaved("sent an artifact of an unknown kind")
	case int64(len(a.Data)) > c.artifacts.MaxBytes, c.bytes+int64(len(a.Data)) > c.artifacts.MaxTotalBytes:
		return misbehaved("sent an artifact above the limit")
	case len(a.Name) > maxText, len(a.MIMEType) > maxText, len(a.Refused) > maxText, a.Size < int64(len(a.Data)):
		return misbehaved("described an artifact unacceptably")
	}
	if !plainHeader(a.MIMEType) {
		a.MIMEType = "application/octet-stream" // code can forge it, so the answer is not given up for it
	}
	c.bytes += int64(len(a.Data))
	return c.out.Artifact(a)
}

// EncodeNetwork is a policy as messages have it; nil for none.
func EncodeNetwork(p *sdk.NetworkPolicy) *providerv1.NetworkPolicy {
	if p == nil {
		return nil
	}
	w := &providerv1.NetworkPolicy{
		MaxConnections: int64(p.MaxConnections), MaxBytes: p.MaxBytes,
		TenantConnections: int64(p.TenantConnections), TenantBytes: p.TenantBytes,
	}
	for _, r := range p.Rules {
		wr := &providerv1.NetworkRule{Host: r.Host, Methods: r.Methods, Paths: r.Paths, Websocket: r.WebSocket, Tcp: r.TCP, Private: r.Private}
		for _, port := range r.Ports {
			wr.Ports = append(wr.Ports, int32(port))
		}
		w.Rules = append(w.Rules, wr)
	}
	for _, s := range p.Secrets {
		w.Secrets = append(w.Secrets, &providerv1.NetworkSecret{Name: s.Name, Header: s.Header, Value: s.Value, Hosts: s.Hosts})
	}
	return w
}
