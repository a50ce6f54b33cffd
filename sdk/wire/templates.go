package wire

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire/providerv1"
)

const (
	// maxTemplates is how many templates a plugin may list.
	maxTemplates = 1000
	// maxStep is the longest step of a build, in bytes.
	maxStep = 200
	// maxSteps is how often a build may tell of its progress: once a second for a day.
	maxSteps = 24 * 60 * 60
)

// digestForm is that of BuiltTemplate.Image and BuiltTemplate.Source.
var digestForm = onceCompiled(`^sha256:[0-9a-f]{64}$`)

// BuildTemplate implements sdk.TemplateBuilder.
func (c *Client) BuildTemplate(ctx context.Context, req sdk.BuildTemplateRequest, progress func(sdk.TemplateProgress) error) (sdk.BuiltTemplate, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.templates.BuildTemplate(ctx, &providerv1.BuildTemplateRequest{
		Name: req.Name, From: req.From, Rootfs: req.Rootfs, Source: req.Source, Packages: req.Packages, Env: req.Env,
		Start: req.Start, Ready: req.Ready, MemoryMb: req.MemoryMB, Cpus: req.CPUs,
		Dockerfile: req.Dockerfile, Context: req.Context, BuildArgs: req.BuildArgs, Network: EncodeNetwork(req.Network),
	})
	if err != nil {
		return sdk.BuiltTemplate{}, DecodeError(err)
	}
	for steps := 0; ; steps++ {
		event, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return sdk.BuiltTemplate{}, misbehaved("ended a build without a template")
		case err != nil:
			return sdk.BuiltTemplate{}, DecodeError(err)
		case steps > maxSteps:
			return sdk.BuiltTemplate{}, misbehaved(fmt.Sprintf("told of more than %d steps of a build", maxSteps))
		}
		switch e := event.GetEvent().(type) {
		case *providerv1.BuildTemplateResponse_Progress:
			step, err := decodeStep(e.Progress)
			if err == nil {
				err = progress(step)
			}
			if err != nil {
				return sdk.BuiltTemplate{}, err
			}
		case *providerv1.BuildTemplateResponse_Built:
			return lastly(ctx, cancel, stream, func() (sdk.BuiltTemplate, error) {
				built, err := decodeTemplate(e.Built)
				if err == nil && req.Source != "" && built.Source != req.Source {
					return sdk.BuiltTemplate{}, misbehaved("built another source than the one that was named")
				}
				return built, err
			})
		default: // an event of a later minor version
		}
	}
}

// ListTemplates implements sdk.TemplateBuilder.
func (c *Client) ListTemplates(ctx context.Context) ([]sdk.BuiltTemplate, error) {
	resp, err := c.templates.ListTemplates(ctx, &providerv1.ListTemplatesRequest{})
	if err != nil {
		return nil, DecodeError(err)
	}
	if len(resp.GetTemplates()) > maxTemplates {
		return nil, misbehaved(fmt.Sprintf("listed more than %d templates", maxTemplates))
	}
	built := make([]sdk.BuiltTemplate, 0, len(resp.GetTemplates()))
	seen := map[string]bool{}
	for _, wt := range resp.GetTemplates() {
		t, err := decodeTemplate(wt)
		if err != nil {
			return nil, err
		}
		if seen[t.Image] {
			return nil, misbehaved(fmt.Sprintf("listed the template %s twice", t.Image))
		}
		seen[t.Image] = true
		built = append(built, t)
	}
	return built, nil
}

// RemoveTemplate implements sdk.TemplateBuilder.
func (c *Client) RemoveTemplate(ctx context.Context, image string) error {
	_, err := c.templates.RemoveTemplate(ctx, &providerv1.RemoveTemplateRequest{Image: image})
	return DecodeError(err)
}

func decodeStep(wp *providerv1.TemplateProgress) (sdk.TemplateProgress, error) {
	if len(wp.GetStep()) > maxStep || !onePrintableLine(wp.GetStep()) {
		return sdk.TemplateProgress{}, misbehaved(fmt.Sprintf("told a step of a build that is more than one line of printable text, or above %d bytes", maxStep))
	}
	return sdk.TemplateProgress{Step: wp.GetStep(), Done: max(wp.GetDone(), 0), Total: max(wp.GetTotal(), 0)}, nil
}

func decodeTemplate(wt *providerv1.BuiltTemplate) (sdk.BuiltTemplate, error) {
	t := sdk.BuiltTemplate{Name: wt.GetName(), Image: wt.GetImage(), Source: wt.GetSource(), Bytes: max(wt.GetBytes(), 0), BuiltAt: decodeTime(wt.GetBuiltAt())}
	if !wordName().MatchString(t.Name) {
		return t, misbehaved(fmt.Sprintf("answered a template whose name %.70q is not of the form %s", t.Name, wordName()))
	}
	if !digestForm().MatchString(t.Image) || !digestForm().MatchString(t.Source) {
		return t, misbehaved("answered a template whose image or source is no SHA-256 sum")
	}
	if len(wt.GetLanguages()) > maxNames {
		return t, misbehaved(fmt.Sprintf("answered a template with more than %d languages", maxNames))
	}
	var err error
	if t.Languages, err = names[sdk.Language](wt.GetLanguages()); err != nil {
		return t, misbehaved("answered a template with languages that are not acceptable: " + err.Error())
	}
	return t, nil
}

// EncodeTemplate is the other direction, for package serve.
func EncodeTemplate(t sdk.BuiltTemplate) *providerv1.BuiltTemplate {
	wt := &providerv1.BuiltTemplate{Name: t.Name, Image: t.Image, Source: t.Source, Bytes: t.Bytes}
	for _, language := range t.Languages {
		wt.Languages = append(wt.Languages, string(language))
	}
	if !t.BuiltAt.IsZero() {
		wt.BuiltAt = timestamppb.New(t.BuiltAt)
	}
	return wt
}

// EncodeStep is the other direction of a step, which it cuts to what a broker takes.
func EncodeStep(p sdk.TemplateProgress) *providerv1.TemplateProgress {
	return &providerv1.TemplateProgress{Step: p.Step[:min(len(p.Step), maxStep)], Done: p.Done, Total: p.Total}
}
