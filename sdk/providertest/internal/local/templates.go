package local

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var _ sdk.TemplateBuilder = (*Provider)(nil)

// builtTemplate is what is kept of a template beside its files.
type builtTemplate struct {
	sdk.BuiltTemplate
	Request sdk.BuildTemplateRequest
}

func (p *Provider) templates() string { return filepath.Join(p.stateDir, "templates") }

func (p *Provider) templateDir(image string) string {
	return filepath.Join(p.templates(), strings.TrimPrefix(image, "sha256:"))
}

// BuildTemplate implements sdk.TemplateBuilder: a template is a directory whose files are
// in the workspace of each instance. It has a module for each package.
func (p *Provider) BuildTemplate(ctx context.Context, req sdk.BuildTemplateRequest, progress func(sdk.TemplateProgress) error) (sdk.BuiltTemplate, error) {
	if req.From != "" {
		return sdk.BuiltTemplate{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "from", "is of no use here: give rootfs")
	}
	if info, err := os.Stat(req.Rootfs); err != nil || !info.IsDir() {
		return sdk.BuiltTemplate{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "rootfs", "is no directory")
	}
	if err := progress(sdk.TemplateProgress{Step: "copy the directory"}); err != nil {
		return sdk.BuiltTemplate{}, err
	}
	var all bytes.Buffer
	err := fs.WalkDir(os.DirFS(req.Rootfs), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(req.Rootfs, path))
		all.WriteString(path + "\n" + sum(text))
		return err
	})
	if err != nil {
		return sdk.BuiltTemplate{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "rootfs", "cannot be read")
	}
	built := builtTemplate{BuiltTemplate: sdk.BuiltTemplate{Name: req.Name, Source: sum(all.Bytes()), Languages: p.Describe().Languages, BuiltAt: time.Now().UTC()}, Request: req}
	built.Request.Source = ""
	said, err := json.Marshal([]any{built.Request, built.Source})
	if err != nil {
		return sdk.BuiltTemplate{}, err
	}
	built.Image = sum(said)
	if there, err := p.template(built.Image); err == nil {
		return there.BuiltTemplate, nil
	}
	if req.Source != "" && req.Source != built.Source {
		return sdk.BuiltTemplate{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "rootfs", "has changed")
	}
	record, err := json.Marshal(built)
	if err != nil {
		return sdk.BuiltTemplate{}, err
	}
	if err := p.keepTemplate(ctx, built, record); err != nil {
		return sdk.BuiltTemplate{}, err
	}
	return built.BuiltTemplate, nil
}

// part begins the name of a template that is not whole yet.
const part = ".part-"

// keepTemplate has a template be there at once, and not before it is whole. Another build of
// the same may have been faster.
func (p *Provider) keepTemplate(ctx context.Context, built builtTemplate, record []byte) error {
	if err := os.MkdirAll(p.templates(), 0o700); err != nil {
		return sdk.Errorf(sdk.CodeUnavailable, "keep the template: %w", pathless(err))
	}
	dir, err := os.MkdirTemp(p.templates(), part)
	if err != nil {
		return sdk.Errorf(sdk.CodeUnavailable, "keep the template: %w", pathless(err))
	}
	defer os.RemoveAll(dir)
	err = errors.Join(os.CopyFS(filepath.Join(dir, "files"), os.DirFS(built.Request.Rootfs)), os.WriteFile(filepath.Join(dir, "record.json"), record, 0o600))
	if err != nil {
		return sdk.Errorf(sdk.CodeUnavailable, "keep the template: %w", pathless(err))
	}
	if err := ctx.Err(); err != nil { // nobody listens any more
		return err
	}
	if err := os.Rename(dir, p.templateDir(built.Image)); err != nil && !errors.Is(err, fs.ErrExist) {
		return sdk.Errorf(sdk.CodeUnavailable, "keep the template: %w", pathless(err))
	}
	return nil
}

func sum(text []byte) string {
	s := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(s[:])
}

func (p *Provider) template(image string) (builtTemplate, error) {
	var built builtTemplate
	text, err := os.ReadFile(filepath.Join(p.templateDir(image), "record.json"))
	if err == nil {
		err = json.Unmarshal(text, &built)
	}
	return built, err
}

// ListTemplates implements sdk.TemplateBuilder.
func (p *Provider) ListTemplates(context.Context) ([]sdk.BuiltTemplate, error) {
	entries, err := os.ReadDir(p.templates())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, sdk.Errorf(sdk.CodeUnavailable, "list the templates: %w", pathless(err))
	}
	var list []sdk.BuiltTemplate
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), part) {
			continue
		}
		if built, err := p.template("sha256:" + e.Name()); err == nil {
			list = append(list, built.BuiltTemplate)
		}
	}
	return list, nil
}

// RemoveTemplate implements sdk.TemplateBuilder.
func (p *Provider) RemoveTemplate(_ context.Context, image string) error {
	if !fs.ValidPath(image) || strings.Contains(image, "/") {
		return nil
	}
	return os.RemoveAll(p.templateDir(image))
}

// fromTemplate puts what a template has into a new instance.
func (p *Provider) fromTemplate(i *instance, image string) error {
	built, err := p.template(image)
	if err != nil {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "template", "was not built here")
	}
	env := maps.Clone(built.Request.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, i.Env)
	i.Env = env
	files := filepath.Join(p.templateDir(image), "files")
	if err := os.CopyFS(filepath.Join(p.dir.of(i.ID), "workspace"), os.DirFS(files)); err != nil {
		return sdk.Errorf(sdk.CodeCreateFailed, "fill the workspace: %w", pathless(err))
	}
	return nil
}
