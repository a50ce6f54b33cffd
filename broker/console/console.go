// Package console serves what people look at in a browser: the admin page below /admin and
// the API's documentation at /docs. Both are static: what they show they ask the broker's own
// API for, with the token that somebody has typed. The admin page is made of web/, and assets/
// is what `make console` builds of it.
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

//go:embed assets
var assets embed.FS

// views are the paths of the admin page's views below /admin.
var views = map[string]bool{
	"sandbox-settings": true, "tenants": true, "instances": true, "audit": true, "configuration": true, "try": true,
}

// policy runs no script but files of ours, and lets nobody frame the pages. The viewer of the
// API's document writes styles into its elements.
const (
	policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

const docsPage = "docs.html"

// file is one of the page's.
type file struct {
	name, mediaType, etag string
	content               []byte
	compressed            func() []byte
}

// pages are the files, by name.
type pages map[string]file

// Add adds the pages to the broker's API.
func Add(a *rest.API, tag string) error {
	files, err := load()
	if err != nil {
		return err
	}
	show := func(path, id, summary, mediaType string, find func(name string) (string, bool)) {
		rest.Stream(a, rest.Operation{
			Method: http.MethodGet, Path: path, ID: id, Tag: tag, Public: true, AnyQuery: true, Quiet: true,
			Summary: summary, Success: []int{http.StatusOK}, Produces: mediaType, Codes: []sdk.Code{sdk.CodeNotFound},
		}, func(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
			name, ok := find(c.Path["name"])
			f, there := files[name]
			if !ok || !there {
				return sdk.Errorf(sdk.CodeNotFound, "There is no such page.")
			}
			return f.serve(w, r)
		})
	}
	const html = "text/html"
	index := func(string) (string, bool) { return "index.html", true }
	show("/admin", "adminPage", "The page for administrators", html, index)
	show("/admin/", "adminPageRoot", "The page for administrators", html, index)
	show("/admin/{name}", "adminPageView", "A view of the page for administrators", html,
		func(view string) (string, bool) { return "index.html", views[view] })
	show("/admin/assets/{name}", "adminPageAsset", "A file of these pages", rest.AnyMediaType,
		func(name string) (string, bool) { return name, path.Ext(name) != ".html" })
	show("/docs", "docsPage", "The API's document, to read and to try", html,
		func(string) (string, bool) { return docsPage, true })
	return nil
}

func load() (pages, error) {
	files := pages{}
	below, err := fs.Sub(assets, "assets")
	if err != nil {
		return nil, err
	}
	return files, fs.WalkDir(below, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(below, name)
		if err != nil {
			return err
		}
		mediaType := mediaTypes[path.Ext(name)]
		if mediaType == "" {
			return fmt.Errorf("%s: of which media type is it?", name)
		}
		sum := sha256.Sum256(content)
		files[name] = file{
			name: name, mediaType: mediaType, etag: hex.EncodeToString(sum[:12]), content: content,
			compressed: sync.OnceValue(func() []byte { return compress(content) }),
		}
		return nil
	})
}

// mediaTypes do not depend on what the machine thinks of them.
var mediaTypes = map[string]string{
	".html": mime.FormatMediaType("text/html", map[string]string{"charset": "utf-8"}),
	".css":  mime.FormatMediaType("text/css", map[string]string{"charset": "utf-8"}),
	".js":   mime.FormatMediaType("text/javascript", map[string]string{"charset": "utf-8"}),
	".txt":  mime.FormatMediaType("text/plain", map[string]string{"charset": "utf-8"}),
}

func compress(content []byte) []byte {
	var to bytes.Buffer
	w, _ := gzip.NewWriterLevel(&to, gzip.BestCompression) // the level is a valid one
	_, _ = w.Write(content)                                // a buffer takes everything
	_ = w.Close()
	return to.Bytes()
}

func (f file) serve(w http.ResponseWriter, r *http.Request) error {
	h := w.Header()
	h.Set("Content-Type", f.mediaType)
	h.Set("Content-Security-Policy", policy)
	if f.name == docsPage {
		h.Set("Content-Security-Policy", docsPolicy)
	}
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
	h.Set("Cache-Control", "no-cache") // the broker may be another version tomorrow: the ETag tells
	h.Set("Vary", "Accept-Encoding")
	content, etag := f.content, f.etag
	if acceptsGzip(r.Header.Get("Accept-Encoding")) && r.Header.Get("Range") == "" {
		content, etag = f.compressed(), f.etag+"-gzip"
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", `"`+etag+`"`)
	http.ServeContent(w, r, f.name, time.Time{}, bytes.NewReader(content))
	return nil
}

// acceptsGzip reports whether gzip is named, and not with the weight 0.
func acceptsGzip(header string) bool {
	for one := range strings.SplitSeq(header, ",") {
		name, weight, _ := strings.Cut(one, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			q := strings.ReplaceAll(strings.TrimSpace(weight), " ", "")
			return q != "q=0" && !strings.HasPrefix(q, "q=0.0")
		}
	}
	return false
}
