package remote

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/contexts"
	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/table"
)

// ContextCommands has the commands about contexts.
type ContextCommands struct {
	List   ContextList   `cmd:"" default:"withargs" help:"List the contexts."`
	Set    ContextSet    `cmd:"" help:"Add a context, or change one."`
	Use    ContextUse    `cmd:"" help:"Make a context the current one."`
	Remove ContextRemove `cmd:"" help:"Forget a context."`
}

// Help is shown below the usage.
func (*ContextCommands) Help() string {
	return `A context is the address of a broker with a token. The current one holds where neither
flags nor variables name another. All are in ~/.config/sandbox-broker/contexts.json, which
nobody else may read.

Examples:
  sandbox-broker config context set work --address https://broker.example.com --token-file -
  sandbox-broker config context use work
  sandbox-broker config context`
}

// stored is a context as it is listed: its token stays where it is.
type stored struct {
	Name     string `json:"name"`
	Current  bool   `json:"current"`
	Address  string `json:"address"`
	HasToken bool   `json:"has_token"`
	CAFile   string `json:"ca_file,omitempty"`
	CertFile string `json:"cert_file,omitempty"`
	KeyFile  string `json:"key_file,omitempty"`
}

// ContextList lists the contexts.
type ContextList struct{ Output }

// Run lists them without their tokens.
func (c *ContextList) Run(console *Console) error {
	_, file, err := loadContexts(console)
	if err != nil {
		return err
	}
	all := []stored{}
	for _, name := range slices.Sorted(maps.Keys(file.Contexts)) {
		one := file.Contexts[name]
		all = append(all, stored{name, name == file.Current, one.Address, one.Token != "", one.CAFile, one.CertFile, one.KeyFile})
	}
	answer, err := json.Marshal(map[string]any{"contexts": all})
	if err != nil {
		return err
	}
	return listing[stored]{
		columns: []table.Column[stored]{
			{Head: "CONTEXT", Cell: func(s stored) string { return s.Name }},
			{Head: "CURRENT", Cell: func(s stored) string { return yes(s.Current) }},
			{Head: "ADDRESS", Cell: func(s stored) string { return s.Address }},
			{Head: "TOKEN", Cell: func(s stored) string { return yes(s.HasToken) }},
			{Head: "CA FILE", Wide: true, Cell: func(s stored) string { return s.CAFile }},
			{Head: "CERT FILE", Wide: true, Cell: func(s stored) string { return s.CertFile }},
		},
		name: func(s stored) string { return s.Name },
	}.print(console, c.Output.Output, all, answer)
}

// loadContexts reads the file, and says where it is.
func loadContexts(console *Console) (path string, file contexts.File, err error) {
	if path, err = contexts.Path(console.Getenv); err != nil {
		return path, file, err
	}
	file, err = contexts.Load(path)
	return path, file, err
}

// changeContexts changes the file.
func changeContexts(console *Console, change func(*contexts.File) error) error {
	path, file, err := loadContexts(console)
	if err != nil {
		return err
	}
	if err := change(&file); err != nil {
		return usageError{err}
	}
	return contexts.Save(path, file)
}

// ContextSet adds or changes a context.
type ContextSet struct {
	Name      string  `arg:"" help:"Its name." complete:"contexts"`
	Address   string  `aliases:"url" placeholder:"URL" help:"The broker's address; for a new context it must be there."`
	TokenFile string  `name:"token-file" placeholder:"FILE" help:"A file with the token, or - for standard input, where a terminal asks for it."`
	CAFile    *string `name:"ca-file" placeholder:"FILE" help:"As for other commands; empty for none."`
	CertFile  *string `name:"cert-file" placeholder:"FILE" help:"As for other commands; empty for none."`
	KeyFile   *string `name:"key-file" placeholder:"FILE" help:"As for other commands; empty for none."`
	Use       bool    `help:"Make it the current one. The first one is."`
}

// Run changes what is named, and leaves the rest.
func (c *ContextSet) Run(console *Console) error {
	token := ""
	if c.TokenFile != "" {
		var err error
		if token, err = askToken(console, c.TokenFile); err != nil {
			return usageError{err}
		}
	}
	return changeContexts(console, func(file *contexts.File) error {
		one, there := file.Contexts[c.Name]
		if !there && c.Address == "" {
			return fmt.Errorf("context %q is new: give its --address", c.Name)
		}
		if there && c.Address != "" && c.Address != one.Address && token == "" {
			one.Token = "" // which is for another broker
		}
		if c.Address != "" {
			one.Address = c.Address
		}
		if token != "" {
			one.Token = token
		}
		for of, given := range map[*string]*string{&one.CAFile: c.CAFile, &one.CertFile: c.CertFile, &one.KeyFile: c.KeyFile} {
			if given != nil {
				*of = *given
			}
		}
		if err := file.Set(c.Name, one); err != nil {
			return err
		}
		if c.Use {
			return file.Use(c.Name)
		}
		return nil
	})
}

// askToken reads a token, which does not appear on the screen where a person types it.
func askToken(console *Console, name string) (string, error) {
	if name != "-" || console.keyboard == nil {
		return readToken(console.In, name)
	}
	return typedSecret(console, "Token: ")
}

// ContextUse makes a context the current one.
type ContextUse struct {
	Name string `arg:"" help:"Its name." complete:"contexts"`
}

// Run notes it.
func (c *ContextUse) Run(console *Console) error {
	return changeContexts(console, func(file *contexts.File) error { return file.Use(c.Name) })
}

// ContextRemove forgets a context.
type ContextRemove struct {
	Name []string `arg:"" help:"Their names." complete:"contexts"`
}

// Run forgets them, all or none.
func (c *ContextRemove) Run(console *Console) error {
	return changeContexts(console, func(file *contexts.File) error {
		for _, name := range c.Name {
			if err := file.Remove(name); err != nil {
				return err
			}
		}
		return nil
	})
}
