// Elements as plain data, and a page brought to what they say. Text stays text: nothing here makes markup of a string.

const SVG_SPACE = "http://www.w3.org/2000/svg";
const AS_PROPERTY = new Set(["value", "checked", "disabled", "indeterminate"]);

/** An element: `attributes` may hold a `key` (unique among its siblings), handlers (`onclick`) and attributes. */
export function h(tag, attributes, ...children) {
  const given = attributes || {};
  return { tag, attributes: given, key: given.key, children: flatChildren(children, []) };
}

/** Make `parent` hold exactly these children, with the nodes it has where they fit. */
export function patch(parent, wanted) {
  const focused = document.activeElement;
  patchChildren(parent, flatChildren([wanted], []));
  if (focused && focused !== document.activeElement && focused !== document.body && focused.isConnected) {
    focused.focus({ preventScroll: true }); // a node that was moved to another place has lost it
  }
}

function flatChildren(children, into) {
  for (const child of children) {
    if (Array.isArray(child)) flatChildren(child, into);
    else if (child !== null && child !== undefined && child !== false && child !== true) {
      into.push(typeof child === "object" ? child : String(child));
    }
  }
  return into;
}

function patchChildren(parent, wanted) {
  let at = parent.firstChild;
  let keyed = null;
  let keys = null;
  for (const node of wanted) {
    if (at && !fits(at, node)) {
      if (keys === null) {
        keys = new Set(wanted.map((each) => each.key).filter((key) => key !== undefined));
        keyed = new Map();
        for (let child = at; child; child = child.nextSibling) if (child.agKey !== undefined) keyed.set(child.agKey, child);
      }
      while (at && at.agKey !== undefined && !keys.has(at.agKey)) {
        const gone = at;
        at = at.nextSibling;
        keyed.delete(gone.agKey);
        parent.removeChild(gone);
      }
    }
    let element;
    if (at && fits(at, node)) {
      element = at;
      at = at.nextSibling;
    } else {
      const kept = keyed && node.key !== undefined ? keyed.get(node.key) : undefined;
      element = kept && fits(kept, node) ? kept : created(node, parent);
      parent.insertBefore(element, at);
    }
    update(element, node);
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    parent.removeChild(gone);
  }
}

function fits(element, node) {
  if (typeof node === "string") return element.nodeType === Node.TEXT_NODE;
  return element.agTag === node.tag && element.agKey === node.key;
}

function created(node, parent) {
  if (typeof node === "string") return document.createTextNode(node);
  const inSvg = node.tag === "svg" || (parent.namespaceURI === SVG_SPACE && parent.tagName !== "foreignObject");
  const element = inSvg ? document.createElementNS(SVG_SPACE, node.tag) : document.createElement(node.tag);
  element.agTag = node.tag;
  element.agKey = node.key;
  element.agAttributes = {};
  return element;
}

function update(element, node) {
  if (typeof node === "string") {
    if (element.nodeValue !== node) element.nodeValue = node;
    return;
  }
  const before = element.agAttributes;
  const after = node.attributes;
  for (const name in before) if (!(name in after)) setAttribute(element, name, null);
  for (const name in after) if (before[name] !== after[name]) setAttribute(element, name, after[name]);
  element.agAttributes = after;
  patchChildren(element, node.children);
  // A select can take its value only once it has its options.
  if (node.tag === "select" && "value" in after && element.value !== after.value) element.value = after.value;
}

function setAttribute(element, name, value) {
  if (name === "key") return;
  if (name.startsWith("on")) element[name] = value;
  else if (AS_PROPERTY.has(name)) element[name] = value ?? false;
  else if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : String(value));
}
