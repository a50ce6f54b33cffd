package contexts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"

	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
)

// Context is a broker and who asks it.
type Context struct {
	// Address is the broker's URL.
	Address string `json:"address"`
	// Token is a secret. Without one the context is of use with a token from elsewhere.
	Token string `json:"token,omitempty"`
	// CAFile, CertFile and KeyFile are paths, as the flags of these names.
	CAFile   string `json:"ca_file,omitempty"`
	CertFile string `json:"cert_file,omitempty"`
	KeyFile  string `json:"key_file,omitempty"`
}

// File is what the file holds.
type File struct {
	// Current is the name of the context that is taken where none is named, or empty.
	Current  string             `json:"current,omitempty"`
	Contexts map[string]Context `json:"contexts"`
}

// ErrOpenToOthers is the error for a file that other users could read.
var ErrOpenToOthers = errors.New("other users may read it, and it holds tokens")

// Path is where the file is for a user with this environment.
func Path(getenv func(string) string) (string, error) {
	dir := getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) {
		home := getenv("HOME")
		if home == "" {
			return "", errors.New("there is no place for contexts: neither XDG_CONFIG_HOME nor HOME is set")
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "sandbox-broker", "contexts.json"), nil
}

// Load reads the file at path. One that is not there holds nothing.
func Load(path string) (File, error) {
	empty := File{Contexts: map[string]Context{}}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return empty, nil
	}
	if err != nil {
		return empty, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return empty, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return empty, fmt.Errorf("%s: %w: chmod 600 %s", path, ErrOpenToOthers, path)
	}
	file, err := parse(f)
	if err != nil {
		return empty, fmt.Errorf("%s: %w", path, err)
	}
	return file, nil
}

// Save writes the file at path for this user alone, whole or not at all.
func Save(path string, file File) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(file); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return ondisk.WriteFile(path, text.Bytes(), 0o600)
}

var names = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Set adds a context, or puts another in its place. The first one becomes the current.
func (f *File) Set(name string, c Context) error {
	if err := check(name, c); err != nil {
		return err
	}
	if f.Contexts == nil {
		f.Contexts = map[string]Context{}
	}
	f.Contexts[name] = c
	if f.Current == "" {
		f.Current = name
	}
	return nil
}

// Use makes a context the current one.
func (f *File) Use(name string) error {
	if _, err := f.Get(name); err != nil {
		return err
	}
	f.Current = name
	return nil
}

// Remove takes a context out. If it was the current one there is none then.
func (f *File) Remove(name string) error {
	if _, err := f.Get(name); err != nil {
		return err
	}
	delete(f.Contexts, name)
	if f.Current == name {
		f.Current = ""
	}
	return nil
}

// Get returns the context of a name.
func (f *File) Get(name string) (Context, error) {
	c, ok := f.Contexts[name]
	if !ok {
		return c, fmt.Errorf("there is no context %q: `sandbox-broker config context list` shows them", name)
	}
	return c, nil
}

func check(name string, c Context) error {
	if !names.MatchString(name) {
		return fmt.Errorf("the context's name %q must begin with a letter or digit and have nothing but letters, digits, '.', '_' and '-', 63 at most", name)
	}
	address, err := url.Parse(c.Address)
	switch {
	case err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https":
		return fmt.Errorf("the address of context %q must be a URL such as https://broker.example.com", name)
	case address.User != nil:
		return fmt.Errorf("the address of context %q must have no user and no password", name)
	case (c.CertFile == "") != (c.KeyFile == ""):
		return fmt.Errorf("context %q has a certificate or a key alone: they come together", name)
	}
	return nil
}
