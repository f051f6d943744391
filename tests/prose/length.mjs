// No sentence of more than LONGEST words, in paragraphs, lists and tables.

// Readers lose a sentence's beginning somewhere between 30 and 40 words. What is in code counts as one.
const LONGEST = 40;

const sentences = new Intl.Segmenter('en', { granularity: 'sentence' });

const text = (node) => {
  if (node.type === 'Code') return 'Code';
  if (node.type === 'Str') return node.value;
  if (node.children) return node.children.map(text).join('');
  return ' ';
};

export default function (context) {
  const { Syntax, RuleError, report } = context;
  const look = (node) => {
    for (const { segment } of sentences.segment(text(node).replace(/\s+/g, ' '))) {
      // A semicolon ends what has to be kept in mind, as a full stop does.
      for (const part of segment.split(';')) {
        const words = part.trim().split(/\s+/).filter((word) => /[\p{L}\p{N}]/u.test(word));
        if (words.length <= LONGEST) continue;
        const beginning = words.slice(0, 6).join(' ');
        report(node, new RuleError(`a sentence of ${words.length} words, more than ${LONGEST}: "${beginning} …"`));
      }
    }
  };
  return { [Syntax.Paragraph]: look, [Syntax.TableCell]: look };
}
