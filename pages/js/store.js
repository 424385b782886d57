// What a browser keeps for these pages. Where it refuses to, or is full, it is kept until the page is left.

function keeper(name) {
  const own = new Map();
  const tried = (act) => {
    try {
      return act(window[name]);
    } catch {
      return undefined;
    }
  };
  return {
    /** A text, or null. */
    get: (key) => own.get(key) ?? tried((store) => store.getItem(key)) ?? null,
    set(key, value) {
      own.set(key, String(value));
      tried((store) => {
        store.setItem(key, value);
        own.delete(key);
      });
    },
    remove(key) {
      own.delete(key);
      tried((store) => store.removeItem(key));
    },
    /** Forgets all that begins like this. */
    clear(prefix) {
      const known = [...own.keys(), ...(tried((store) => Object.keys(store)) ?? [])];
      known.filter((key) => key.startsWith(prefix)).forEach((key) => this.remove(key));
    },
  };
}

export const ofTab = keeper('sessionStorage');
export const ofDevice = keeper('localStorage');
